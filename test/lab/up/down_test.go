// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"testing"

	"sluice.dev/test/lab/cluster/process"
)

func TestDescribeTransition(t *testing.T) {
	running := process.Status{Name: "kwok", State: process.Running, PID: 7, LogPath: "/a b/kwok.log"}
	crashed, again := running, running
	crashed.State, crashed.PID, crashed.LastExit = process.BackOff, 0, "signal: killed"
	again.PID, again.Restarts = 8, 1
	stopping := running
	stopping.State = process.Stopping
	tests := map[string]struct {
		was, now process.Status
		want     string
	}{
		"its first status":               {process.Status{}, running, ""},
		"its first status after a crash": {process.Status{}, again, ""},
		"nothing":                        {running, running, ""},
		"it crashes":                     {running, crashed, "kwok ended (signal: killed) and will be restarted; its log: '/a b/kwok.log'"},
		"it is still down":               {crashed, crashed, ""},
		"it restarts":                    {crashed, again, "kwok was restarted: process 8, restart 1"},
		"it restarted in between":        {running, again, "kwok was restarted: process 8, restart 1"},
		"it is stopping":                 {running, stopping, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := describeTransition(tc.was, tc.now); got != tc.want {
				t.Errorf("describeTransition = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReportOwnsDir(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		want   bool
	}{
		"unchanged": {func(*testing.T, string) {}, true},
		"the folder is gone": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, false},
		"the report is gone":   {removeFile(reportFile), false},
		"the mark is gone":     {removeFile("cluster.json"), false},
		"another run owns it":  {writeFile(reportFile, `{"pid": 43}`), false},
		"the report is broken": {writeFile(reportFile, "{"), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			report := Report{Dir: filepath.Join(t.TempDir(), "d"), PID: 42}
			if err := os.Mkdir(report.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile("cluster.json", `{"apiVersion": "sim.sluice.dev/v1alpha1", "kind": "EmbeddedCluster"}`)(t, report.Dir)
			if err := report.save(nil); err != nil {
				t.Fatal(err)
			}
			tc.change(t, report.Dir)
			if got := report.ownsDir(); got != tc.want {
				t.Errorf("ownsDir = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRemoveEmptyDirsKeepsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.MkdirAll(filepath.Join(dir, "empty", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile("mine", "text")(t, dir)
	removeEmptyDirs(dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("left: %v, %v; want only the file", entries, err)
	}
	removeFile("mine")(t, dir)
	removeEmptyDirs(dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("an empty folder stays: %v", err)
	}
}

func removeFile(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func writeFile(name, content string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
