// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsValidated(t *testing.T) {
	fit := func(bytes int) string { return "/" + strings.Repeat("d", bytes-1) }
	tests := map[string]struct {
		options Options
		want    []string // in the error; none where it is accepted
	}{
		"the default":              {Options{Dir: ".sluice", Nodes: DefaultNodes}, nil},
		"the most":                 {Options{Dir: fit(67), Nodes: MaxNodes, Port: 65535}, nil},
		"no node":                  {Options{Dir: "d", Nodes: 0}, []string{"--nodes 0", "1 to 50"}},
		"too many nodes":           {Options{Dir: "d", Nodes: MaxNodes + 1}, []string{"--nodes 51", "1 to 50"}},
		"a port below":             {Options{Dir: "d", Nodes: 1, Port: -1}, []string{"--port -1", "65535"}},
		"a port above":             {Options{Dir: "d", Nodes: 1, Port: 65536}, []string{"--port 65536", "65535"}},
		"policy time too fast":     {Options{Dir: "d", Nodes: 1, TimeScale: 3601}, []string{"--time-scale 3601", "1 to 3600"}},
		"policy time backwards":    {Options{Dir: "d", Nodes: 1, TimeScale: -1}, []string{"--time-scale -1", "1 to 3600"}},
		"policy time at its pace":  {Options{Dir: "d", Nodes: 1, TimeScale: 3600}, nil},
		"no folder":                {Options{Nodes: 1}, []string{"--dir"}},
		"an unknown scheduler":     {Options{Dir: "d", Nodes: 1, Scheduler: "slurm"}, []string{"--scheduler slurm", "kube-scheduler or kueue"}},
		"no number that is asked":  {Options{Dir: "d", AnyNodes: true, Scheduler: "kueue"}, nil},
		"as long as it may be":     {Options{Dir: fit(68), Nodes: 9}, nil},
		"a byte too long":          {Options{Dir: fit(69), Nodes: 9}, []string{"--dir /ddd", "69 bytes", "at most 68"}},
		"too long for the longest": {Options{Dir: fit(68), Nodes: 10}, []string{"68 bytes", "at most 67 with 10 nodes"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tc.options.validated()
			if err == nil {
				if len(tc.want) > 0 {
					t.Fatal("accepted")
				}
				if !filepath.IsAbs(got.Dir) {
					t.Errorf("Dir = %s, want it absolute", got.Dir)
				}
				return
			}
			if len(tc.want) == 0 {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestNodesWhereNobodySaysHowMany(t *testing.T) {
	for scheduler, want := range map[string]int{"": DefaultNodes, schedulerKube: DefaultNodes, schedulerKueue: DefaultNodesKueue} {
		got, err := Options{Dir: "/none", AnyNodes: true, Nodes: 7, Scheduler: scheduler}.validated()
		if err != nil || got.Nodes != want {
			t.Errorf("with scheduler %q: %d nodes, %v; want %d", scheduler, got.Nodes, err, want)
		}
	}
}

func TestFollowed(t *testing.T) {
	base := followed(t.TempDir())
	link := filepath.Join(base, "link")
	if err := os.Symlink(filepath.Join(base, "target"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "target"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:                           filepath.Join(base, "target"),
		filepath.Join(link, "not/yet"): filepath.Join(base, "target/not/yet"),
		"/":                            "/",
		"/not/there":                   "/not/there",
	} {
		if got := followed(path); got != want {
			t.Errorf("followed(%s) = %s, want %s", path, got, want)
		}
	}
}
