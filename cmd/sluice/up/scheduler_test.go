// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clusterIn makes a cluster's folder as a start leaves it, with further files.
func clusterIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if files == nil {
		return dir
	}
	files["cluster.json"] = `{"apiVersion": "sim.sluice.dev/v1alpha1", "kind": "EmbeddedCluster", "ports": {}}`
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAClusterKeepsItsScheduler(t *testing.T) {
	tests := map[string]struct {
		files       map[string]string // nil for no cluster
		asked, want string
		wantErr     []string
	}{
		"a new one, by default":           {nil, "", "kube-scheduler", nil},
		"a new one, asked for":            {nil, "kueue", "kueue", nil},
		"unknown":                         {nil, "kai", "", []string{"--scheduler kai", "kube-scheduler or kueue"}},
		"kept":                            {map[string]string{"scheduler": "kueue\n"}, "", "kueue", nil},
		"the same again":                  {map[string]string{"scheduler": "kueue\n"}, "kueue", "kueue", nil},
		"another":                         {map[string]string{"scheduler": "kueue\n"}, "kube-scheduler", "", []string{"has kueue, and keeps it", "down --dir"}},
		"its first start was cut short":   {map[string]string{}, "kueue", "kueue", nil},
		"from before there was a choice":  {map[string]string{"report.json": "{}"}, "", "kube-scheduler", nil},
		"that one does not change either": {map[string]string{"report.json": "{}"}, "kueue", "", []string{"has kube-scheduler"}},
		"what nobody can have written":    {map[string]string{"scheduler": "slurm"}, "", "", []string{`says "slurm"`, "kube-scheduler or kueue"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := chooseScheduler(clusterIn(t, tc.files), tc.asked)
			if (err != nil) != (tc.wantErr != nil) || got != tc.want {
				t.Fatalf("%q, %v; want %q, %q in the error", got, err, tc.want, tc.wantErr)
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestTheSchedulerIsKept(t *testing.T) {
	dir := clusterIn(t, map[string]string{})
	if err := (Options{Dir: dir, Scheduler: schedulerKueue}).keepScheduler(); err != nil {
		t.Fatal(err)
	}
	if got, err := keptScheduler(dir); got != schedulerKueue || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
