// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"gotest.tools/v3/golden"

	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/process"
)

// The golden files are compared byte for byte.
func init() { golden.NormalizeCRLFToLF = false }

func TestRenderReport(t *testing.T) {
	report := Report{
		Server: "https://127.0.0.1:26256", Kubeconfig: "/lab/a/my room/.sluice/kubeconfig", Dir: "/lab/a/my room/.sluice", PID: 42,
		Mail: Mail{Dir: "/lab/a/my room/.sluice/mail", Count: 3},
	}
	for _, node := range sampleSpecs[schedulerKube].nodes(10) {
		report.Nodes = append(report.Nodes, Node{Name: node.Name, Pool: node.Pool, GPUs: describeGPUs(node.Machine)})
	}
	report = report.withComponents([]process.Status{
		{Name: "webhook", State: process.Running, PID: 103, LogPath: "/lab/a/my room/.sluice/logs/webhook.log"},
		{Name: "kwok", State: process.BackOff, Restarts: 3, LastExit: "exit status 1", LogPath: "/lab/a/my room/.sluice/logs/kwok.log"},
		{Name: "gpuagent-dgx-10", State: process.Running, PID: 105, LogPath: "/lab/a/my room/.sluice/logs/gpuagent-dgx-10.log"},
		{Name: "gpuagent-dgx-2", State: process.Running, PID: 104, LogPath: "/lab/a/my room/.sluice/logs/gpuagent-dgx-2.log"},
		{Name: cluster.Etcd, State: process.Running, PID: 101, LogPath: "/lab/a/my room/.sluice/logs/etcd.log"},
	})
	ahead := &PolicyTime{Now: time.Date(2026, 12, 21, 15, 4, 5, 0, time.UTC), AheadSeconds: 30 * 86400, Scale: 60}
	for name, tc := range map[string]struct {
		who  caller
		time *PolicyTime
	}{
		"inside.txt":    {caller{program: "bin/sluice", dir: "/lab/a/my room"}, nil},
		"elsewhere.txt": {caller{program: "sluice", dir: "/srv"}, nil},
		"ahead.txt":     {caller{program: "sluice", dir: "/srv"}, ahead},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer // no terminal, so no colors
			report.PolicyTime = tc.time
			if _, err := lipgloss.Fprint(&got, renderReport(report, tc.who, time.UTC)); err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, got.String(), name)
		})
	}
}

func TestDescribeGPUs(t *testing.T) {
	tests := map[string]struct {
		machine devices.Machine
		want    string
	}{
		"whole": {devices.DGXA100(), "8 x NVIDIA-A100-SXM4-40GB"},
		"MIG":   {devices.DGXA100MIG(), "8 x NVIDIA-A100-SXM4-40GB in MIG mode, partitioned on demand"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := describeGPUs(tc.machine); got != tc.want {
				t.Errorf("describeGPUs = %q, want %q", got, tc.want)
			}
		})
	}
}

// A large cluster shows some agents, and every agent that does not run.
func TestRenderReportWithManyAgents(t *testing.T) {
	var list []Component
	for i := range 20 {
		list = append(list, Component{Name: fmt.Sprintf("gpuagent-dgx-%d", i+1), State: "Running", PID: 100 + i})
	}
	list[15].State = "BackOff"
	got := componentTable(list, caller{})
	for word, want := range map[string]bool{
		"gpuagent-dgx-8 ": true, "gpuagent-dgx-9 ": false, "gpuagent-dgx-16": true, "and 11 more agents": true,
	} {
		if strings.Contains(got, word) != want {
			t.Errorf("%q is on the screen: %v, want %v:\n%s", word, !want, want, got)
		}
	}
}

func TestDisplayOrderFollowsDependencies(t *testing.T) {
	order := []string{
		cluster.Etcd,
		cluster.APIServer,
		cluster.ControllerManager,
		cluster.Scheduler,
		"kwok",
		"fakekubelet",
		"mailsink",
		"launcher",
		"kueue",
		"lifecycle",
		"webhook",
		"gpuagent-dgx-1",
	}
	for i, name := range order {
		if got := displayOrder(name); got != i {
			t.Errorf("displayOrder(%s) = %d, want %d", name, got, i)
		}
	}
	if got := displayOrder("webhook-2"); got != displayOrder("webhook") {
		t.Errorf("a second replica has place %d, want that of the first, %d", got, displayOrder("webhook"))
	}
}

func TestCallerPaths(t *testing.T) {
	tests := map[string]struct {
		dir, path, want, persistent string
	}{
		"below":            {"/lab/a", "/lab/a/.sluice/kubeconfig", ".sluice/kubeconfig", `"$PWD"/.sluice/kubeconfig`},
		"below, odd":       {"/lab/a", "/lab/a/b c/k", "'b c/k'", `"$PWD"/'b c/k'`},
		"the same":         {"/lab/a", "/lab/a", ".", `"$PWD"/.`},
		"beside":           {"/lab/a", "/lab/ab/k", "/lab/ab/k", "/lab/ab/k"},
		"above":            {"/lab/a", "/lab/k", "/lab/k", "/lab/k"},
		"a name with dots": {"/lab/a", "/lab/a/..b/k", "..b/k", `"$PWD"/..b/k`},
		"elsewhere, odd":   {"/lab/a", "/shelf/b c", "'/shelf/b c'", "'/shelf/b c'"},
		"unknown folder":   {"", "/shelf/k", "/shelf/k", "/shelf/k"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			who := caller{dir: tc.dir}
			if got := who.shellPath(tc.path); got != tc.want {
				t.Errorf("shellPath = %s, want %s", got, tc.want)
			}
			if got := who.persistentPath(tc.path); got != tc.persistent {
				t.Errorf("persistentPath = %s, want %s", got, tc.persistent)
			}
		})
	}
}

func TestProgramName(t *testing.T) {
	for arg0, want := range map[string]string{
		"sluice":                        "sluice",
		"bin/sluice":                    "bin/sluice",
		"/opt/my tools/sluice":          "'/opt/my tools/sluice'",
		"/usr/local/bin/kubectl-sluice": "kubectl sluice",
	} {
		if got := programName(arg0); got != want {
			t.Errorf("programName(%q) = %s, want %s", arg0, got, want)
		}
	}
}
