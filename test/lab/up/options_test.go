// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

func TestOptionsValidate(t *testing.T) {
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
		"the default number":       {Options{Dir: "d", NodesUnset: true, Scheduler: "kueue"}, nil},
		"as long as it may be":     {Options{Dir: fit(68), Nodes: 9}, nil},
		"a byte too long":          {Options{Dir: fit(69), Nodes: 9}, []string{"--dir /ddd", "69 bytes", "at most 68"}},
		"too long for the longest": {Options{Dir: fit(68), Nodes: 10}, []string{"68 bytes", "at most 67 with 10 nodes"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tc.options.validate()
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
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestOptionsDefaultNodes(t *testing.T) {
	for scheduler, want := range map[string]int{"": DefaultNodes, schedulerKube: DefaultNodes, schedulerKueue: DefaultNodesKueue} {
		got, err := Options{Dir: "/none", NodesUnset: true, Nodes: 7, Scheduler: scheduler}.validate()
		if err != nil || got.Nodes != want {
			t.Errorf("with scheduler %q: %d nodes, %v; want %d", scheduler, got.Nodes, err, want)
		}
	}
}

func TestResolveSymlinks(t *testing.T) {
	base := resolveSymlinks(t.TempDir())
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
		if got := resolveSymlinks(path); got != want {
			t.Errorf("resolveSymlinks(%s) = %s, want %s", path, got, want)
		}
	}
}

// newClusterDir returns the folder of a cluster with files.
func newClusterDir(t *testing.T, files map[string]string) string {
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

func TestChooseSchedulerKeepsExisting(t *testing.T) {
	tests := map[string]struct {
		files           map[string]string // nil for no cluster
		requested, want string
		wantErr         []string
	}{
		"a new one, by default": {nil, "", "kube-scheduler", nil},
		"a new one, requested":  {nil, "kueue", "kueue", nil},
		"unknown":               {nil, "kai", "", []string{"--scheduler kai", "kube-scheduler or kueue"}},
		"kept":                  {map[string]string{"scheduler": "kueue\n"}, "", "kueue", nil},
		"the same again":        {map[string]string{"scheduler": "kueue\n"}, "kueue", "kueue", nil},
		"another": {
			map[string]string{"scheduler": "kueue\n"},
			"kube-scheduler",
			"",
			[]string{"keeps its scheduler kueue", "down --dir"},
		},
		"its first start was interrupted": {map[string]string{}, "kueue", "kueue", nil},
		"from before there was a choice":  {map[string]string{"report.json": "{}"}, "", "kube-scheduler", nil},
		"that one does not change either": {map[string]string{"report.json": "{}"}, "kueue", "", []string{"keeps its scheduler kube-scheduler"}},
		"a damaged file":                  {map[string]string{"scheduler": "slurm"}, "", "", []string{`has "slurm"`, "kube-scheduler or kueue"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := chooseScheduler(newClusterDir(t, tc.files), tc.requested)
			if (err != nil) != (tc.wantErr != nil) || got != tc.want {
				t.Fatalf("%q, %v; want %q, %q in the error", got, err, tc.want, tc.wantErr)
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestSaveScheduler(t *testing.T) {
	dir := newClusterDir(t, map[string]string{})
	if err := (Options{Dir: dir, Scheduler: schedulerKueue}).saveScheduler(); err != nil {
		t.Fatal(err)
	}
	if got, err := readScheduler(dir); got != schedulerKueue || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The sample has the node pools of its nodes, with its scheduler.
func TestSampleNodePoolsMatchNodes(t *testing.T) {
	for _, scheduler := range Schedulers {
		t.Run(scheduler, func(t *testing.T) {
			s := sampleSpecs[scheduler]
			want := map[string]v1alpha1.Sharing{}
			for _, node := range s.nodes(s.defaultNodes) {
				want[node.Pool] = v1alpha1.SharingNone
				if len(node.Machine.MIG) > 0 {
					want[node.Pool] = v1alpha1.SharingMIG
				}
			}
			objects, err := manifests.Build(s.folder)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]v1alpha1.Sharing{}
			for _, object := range objects {
				if object.GetKind() != "NodePool" {
					continue
				}
				var pool v1alpha1.NodePool
				if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &pool, true); err != nil {
					t.Fatal(err)
				}
				got[pool.Name] = pool.Spec.Sharing
				if string(pool.Spec.Scheduler) != scheduler {
					t.Errorf("pool %s has scheduler %s", pool.Name, pool.Spec.Scheduler)
				}
				if diff := cmp.Diff(map[string]string{v1alpha1.LabelNodePool: pool.Name}, pool.Spec.NodeSelector); diff != "" {
					t.Errorf("pool %s (-want +got)\n%s", pool.Name, diff)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-nodes +sample)\n%s", diff)
			}
		})
	}
}

func TestFairnessSampleNodes(t *testing.T) {
	var got []string
	for _, node := range sampleSpecs[schedulerKueue].nodes(4) {
		got = append(got, node.Name+" "+node.Pool)
	}
	if diff := cmp.Diff([]string{"dgx-1 whole", "dgx-2 whole", "dgx-3 mig", "dgx-4 whole"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestKueueRunsOnlyWhenRequested(t *testing.T) {
	for scheduler, want := range map[string]bool{schedulerKube: false, schedulerKueue: true} {
		has := slices.ContainsFunc(Options{Scheduler: scheduler}.components(), func(c component) bool { return c.name == "kueue" })
		if has != want || (len(sampleSpecs[scheduler].programs) > 0) != want {
			t.Errorf("with %s: running: %v, built: %v", scheduler, has, sampleSpecs[scheduler].programs)
		}
	}
}

func TestPodNamesIncludeAgentPerNode(t *testing.T) {
	got := componentContext{nodes: Options{Scheduler: schedulerKube, Nodes: 3}.nodes()}.podNames()
	want := []string{"lifecycle", "webhook", "gpuagent-dgx-1", "gpuagent-dgx-2", "gpuagent-dgx-3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReservePortsAreDistinct(t *testing.T) {
	list := Options{Scheduler: schedulerKueue, Nodes: 3}.components()
	ports, release, err := reservePorts(list)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	owners := map[int]string{}
	for _, c := range list {
		if len(ports[c.name]) != c.ports {
			t.Errorf("%s has %d ports, want %d", c.name, len(ports[c.name]), c.ports)
		}
		for _, port := range ports[c.name] {
			if other, taken := owners[port]; taken {
				t.Errorf("%s and %s both have port %d", c.name, other, port)
			}
			owners[port] = c.name
		}
	}
}
