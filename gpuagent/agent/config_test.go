// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/config"
)

const configHeader = "apiVersion: config.sluice.dev/v1alpha1\nkind: GPUAgentConfig\n"

func TestConfigDefaults(t *testing.T) {
	t.Setenv(NodeNameVariable, "dgx-01")
	var got Config
	if err := config.Parse([]byte(configHeader), &got); err != nil {
		t.Fatal(err)
	}
	want := Config{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: ConfigKind},
		Common:   config.Common{Metrics: ":8080", MetricsAccess: config.MetricsAuthorized, Health: ":8081", Logging: config.Logging{Level: "info", Format: "json"}},
		NodeName: "dgx-01", Proc: "/proc", Sys: "/sys", HostRoot: "/host", DriverRoot: "/run/nvidia/driver",
		PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		StateDir:     "/var/lib/sluice/gpuagent",
		DevicePlugin: Daemon{Command: "nvidia-device-plugin"},
		DCGMExporter: Exporter{
			Daemon: Daemon{Command: "dcgm-exporter"}, Namespaces: []string{"gpu-operator", "kube-system", "nvidia-gpu-operator"},
			Interval: metav1.Duration{Duration: 30 * time.Second},
		},
		Intervals: Intervals{
			Observe:     metav1.Duration{Duration: 2 * time.Second},
			Sample:      metav1.Duration{Duration: time.Second},
			Report:      metav1.Duration{Duration: 30 * time.Second},
			Retry:       metav1.Duration{Duration: 30 * time.Second},
			CallTimeout: metav1.Duration{Duration: 2 * time.Minute},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Socket() != "/var/lib/sluice/gpuagent/agent.sock" {
		t.Errorf("socket %s", got.Socket())
	}
}

// The file overrides the environment.
func TestConfigNodeNameOverridesEnvironment(t *testing.T) {
	t.Setenv(NodeNameVariable, "dgx-01")
	var got Config
	if err := config.Parse([]byte(configHeader+"nodeName: dgx-02\ndriver: {library: /tmp/n.so}\nintervals: {observe: 500ms}\n"),
		&got); err != nil {
		t.Fatal(err)
	}
	if got.NodeName != "dgx-02" || got.HostRoot != "/host" || got.Driver.Library != "/tmp/n.so" || got.Intervals.Observe.Duration != 500*time.Millisecond {
		t.Errorf("%+v", got)
	}
}

func TestConfigValidation(t *testing.T) {
	const node = "nodeName: dgx-01\n"
	tests := map[string]struct{ text, want string }{
		"no node":          {"", "NODE_NAME"},
		"no node's name":   {"nodeName: Not_A_Node", "nodeName"},
		"a simulator":      {node + "driver: {simulator: /b}", "simulator"},
		"relative":         {node + "proc: proc", "proc"},
		"relative sys":     {node + "sys: sys", "sys"},
		"relative host":    {node + "hostRoot: host", "hostRoot"},
		"relative root":    {node + "driverRoot: run", "driverRoot"},
		"relative library": {node + "driver: {library: libnvidia-ml.so.1}", "driver.library"},
		"long socket":      {node + "stateDir: /" + strings.Repeat("x", 100), "stateDir"},
		"folder of plugin": {node + "devicePlugin: {command: /usr/bin/nvidia-device-plugin --x}", "devicePlugin.command"},
		"hurry":            {node + "intervals: {observe: 1ms}", "200ms to 1m0s"},
		"slow samples":     {node + "intervals: {sample: 31s}", "intervals.sample"},
		"rare reports":     {node + "intervals: {report: 2m}", "intervals.report"},
		"exporter":         {node + "dcgmExporter: {namespaces: [a/b]}", "dcgmExporter.namespaces[0]"},
		"exporter's pace":  {node + "dcgmExporter: {interval: 1h}", "dcgmExporter.interval"},
		"backwards":        {node + "intervals: {callTimeout: -1s}", "intervals.callTimeout"},
		"unknown":          {node + "gpus: 8", "gpus"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(NodeNameVariable, "")
			err := config.Parse([]byte(configHeader+tc.text+"\n"), &Config{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want something about %s", err, tc.want)
			}
		})
	}
}
