// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOptionsConflictWith(t *testing.T) {
	runs := Report{Server: "https://127.0.0.1:26256", PID: 42, Nodes: make([]Node, 2)}
	tests := map[string]struct {
		options Options
		want    string
	}{
		"the same":                     {Options{Detach: true, Nodes: 2, Port: 26256}, ""},
		"any port":                     {Options{Detach: true, Nodes: 2}, ""},
		"nodes not requested":          {Options{Detach: true, Nodes: 3, NodesUnset: true}, ""},
		"other nodes":                  {Options{Detach: true, Nodes: 3}, "--nodes 3 does not change it"},
		"another port":                 {Options{Detach: true, Nodes: 2, Port: 80}, "--port 80 does not change it"},
		"the foreground has a process": {Options{Nodes: 2}, "process 42 runs it"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := tc.options.conflictWith(runs); got != tc.want {
				t.Errorf("conflictWith = %q, want %q", got, tc.want)
			}
		})
	}
	if got, want := runs.describe(), "with 2 nodes on port 26256"; got != want {
		t.Errorf("describe = %q, want %q", got, want)
	}
}

func TestCheckRunningValidatesOptionsFirst(t *testing.T) {
	if runs, err := CheckRunning(Options{Dir: t.TempDir(), Nodes: 0, Detach: true}); err == nil || runs {
		t.Errorf("CheckRunning = %v, %v; want an error about --nodes", runs, err)
	}
}

func TestCheckRunningInEmptyDir(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "sluice-up-") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var output bytes.Buffer
	if runs, err := CheckRunning(Options{Dir: dir, Nodes: 1, Output: &output}); runs || err != nil || output.Len() > 0 {
		t.Errorf("CheckRunning = %v, %v, %q; want false and no output", runs, err, &output)
	}
	if _, err := Status(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Status = %v, want ErrNotRunning", err)
	}
	if err := Down(t.Context(), filepath.Join(dir, "none"), false, &output); err != nil ||
		!bytes.HasPrefix(output.Bytes(), []byte("No cluster in ")) {
		t.Errorf("Down = %v, %q", err, &output)
	}
}
