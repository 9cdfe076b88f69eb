// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/fakekubelet/toyshell"
)

// A container sees its own devices alone, numbered from 0, with its share of a GPU that pods share.
func TestContainerDevices(t *testing.T) {
	gpus := []devices.GPU{
		{GPU: nvml.GPU{UUID: "GPU-0", Name: "A100", MemoryMiB: 40960}},
		{GPU: nvml.GPU{UUID: "GPU-1", Name: "A100", MemoryMiB: 40960}},
		{
			GPU: nvml.GPU{UUID: "GPU-2", Name: "A100", MemoryMiB: 40960}, Partitioned: true,
			Instances: []devices.Instance{{Name: "1g.5gb", UUID: "MIG-a"}, {Name: "1g.5gb", UUID: "MIG-b"}},
		},
	}
	holder := devices.Pod{
		Grants: []devices.Grant{
			{Container: "main", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-1"}, "nvidia.com/mig-1g.5gb": {"MIG-b"}}},
			{Container: "side", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-0"}}},
		},
		Processes: []devices.Process{{Container: "main", PID: 7, MemoryMiB: map[string]int64{"GPU-1": 36864}, Utilization: 80}},
	}
	want := []toyshell.Device{
		{GPU: 0, Name: "A100", UUID: "GPU-1", MemoryMiB: 40960, UsedMiB: 36864, Utilization: 80, PID: 7},
		{GPU: 1, Name: "A100", UUID: "GPU-2", Profile: "1g.5gb", MIGUUID: "MIG-b"},
	}
	if diff := cmp.Diff(want, containerDevices(holder, "main", gpus)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := containerDevices(holder, "other", gpus); len(got) > 0 {
		t.Errorf("a container without devices sees %+v", got)
	}
	gpus[1].Replicas = 4
	replicated := devices.OfGPUs(gpus[1:2])
	holder.Grants = []devices.Grant{{Container: "main", Devices: map[string][]string{replicated[0].Resource: {replicated[0].ID}}}}
	got := containerDevices(holder, "main", gpus)
	if len(got) != 1 || got[0].Share != "1 of 4 replicas" || got[0].MemoryMiB != 10240 {
		t.Errorf("a replica: %+v", got)
	}
}

// Values of Secrets are not read, and references that double a value stop at a limit.
func TestContainerEnv(t *testing.T) {
	container := &corev1.Container{Name: "main", Env: []corev1.EnvVar{
		{Name: "DIR", Value: "/data"},
		{Name: "SETS", Value: "$(DIR)/sets"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "wandb"}, Key: "token",
		}}},
		{Name: "A0", Value: strings.Repeat("x", 1000)},
	}}
	for i := range 40 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("A", i+1), Value: fmt.Sprintf("$(A%d)$(A%[1]d)", i)})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: corev1.PodSpec{NodeName: "dgx-1"}}
	env := containerEnv(pod, container, "train")
	for name, want := range map[string]string{
		"SETS": "/data/sets", "NODE": "dgx-1", "HOSTNAME": "train", "TOKEN": "(key token of Secret wandb: not read in this simulation)",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	for name, value := range env {
		if len(value) > maxVariable {
			t.Errorf("%s has %d bytes", name, len(value))
		}
	}
}
