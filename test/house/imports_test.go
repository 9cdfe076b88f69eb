// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowedImports lists the packages of the repository that each part may import besides its own.
// A part that is not listed may import none.
var allowedImports = map[string][]string{
	"api":       {},
	"manifests": {"api"},
	"policies":  {"api"},
	"webhook":   {"api", "policies"},
	"lifecycle": {"api", "policies", "gpuagent/mig"},
	"gpuagent":  {"api"},
	"cmd":       {"api", "policies", "webhook", "lifecycle", "gpuagent", "manifests"},
	"test":      {"api", "policies", "webhook", "lifecycle", "gpuagent", "manifests"},
}

// pureFolder is a folder whose packages do no I/O.
type pureFolder struct {
	path string
	// subfolders is true if the rule also applies to the folders below.
	subfolders bool
}

var (
	pureFolders = []pureFolder{
		{"api/workload", true},
		{"api/workloadkind", true},
		{"api/period", true},
		{"gpuagent/mig", true},
		{"lifecycle/timelimit", false},
		{"test/lab/cluster/fakekubelet/toyshell", true}, // TestScriptsDoNotReachThisMachine guards what the packages that it imports do
	}
	ioPackages = []string{
		"net", "os", "io/fs", "io/ioutil", "log", "syscall", "golang.org/x/sys", "k8s.io/client-go",
		"sigs.k8s.io/controller-runtime/pkg/client", "github.com/NVIDIA", "mvdan.cc/sh/v3/interp",
	}
)

// findImpureImport returns the pure folder that the import violates, or "".
func findImpureImport(folder, imported string) string {
	for _, pure := range pureFolders {
		if folder != pure.path && (!pure.subfolders || !isBelow(folder, pure.path)) {
			continue
		}
		for _, forbidden := range ioPackages {
			if isBelow(imported, forbidden) {
				return pure.path
			}
		}
	}
	return ""
}

// importAllowed reports whether a file in folder may import a package, both relative to the
// module, and the rule that forbids it.
func importAllowed(folder, imported string, test bool) (bool, string) {
	part, _, _ := strings.Cut(folder, "/")
	target, _, _ := strings.Cut(imported, "/")
	switch {
	case target == "cmd" && isBelow(folder, "test/lab"):
		return slices.Contains([]string{"cmd/sluice/installation", "cmd/sluice/printer"}, imported), "of cmd the lab imports installation and printer"
	case target == "cmd" && !isBelow(folder, strings.Join(firstElements(imported, 2), "/")):
		return false, "nothing imports cmd"
	case isBelow(imported, "test/lab"):
		return isBelow(folder, "test/lab"), "nothing imports the lab"
	case part == target:
		return true, ""
	case test && part != "api" && target == "test":
		return true, ""
	case test && target == "manifests":
		return true, ""
	}
	for _, may := range allowedImports[part] {
		if isBelow(imported, may) {
			return true, ""
		}
	}
	return false, part + " may import only " + strings.Join(append([]string{part}, allowedImports[part]...), ", ")
}

func isBelow(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func firstElements(path string, n int) []string {
	parts := strings.Split(path, "/")
	return parts[:min(n, len(parts))]
}

func TestImports(t *testing.T) {
	for _, f := range loadSource(t) {
		for _, imported := range f.imports {
			ours, isOurs := strings.CutPrefix(imported, module+"/")
			if isOurs {
				if ok, why := importAllowed(f.folder, ours, f.isTest()); !ok {
					t.Errorf("%s imports %s: %s", f.path(), imported, why)
				}
				continue
			}
			if pure := findImpureImport(f.folder, imported); pure != "" && !f.isTest() {
				t.Errorf("%s imports %s: %s does no I/O", f.path(), imported, pure)
			}
		}
	}
}

// lightPrograms are programs that run on every node, with the packages they must not link for the sake of
// their memory: controller-runtime, and the types of all of Kubernetes.
var lightPrograms = map[string][]string{
	"cmd/gpuagent": {"sigs.k8s.io/controller-runtime", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers"},
}

// An import of a package that links them costs the agent of each node 20 MiB.
func TestLightProgramsLinkNoHeavyPackages(t *testing.T) {
	for program, heavy := range lightPrograms {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/"+program).CombinedOutput()
		if err != nil {
			t.Fatalf("list packages of %s: %v\n%s", program, err, out)
		}
		for linked := range strings.FieldsSeq(string(out)) {
			for _, forbidden := range heavy {
				if isBelow(linked, forbidden) {
					t.Errorf("%s links %s", program, linked)
				}
			}
		}
	}
}

// testSupport are the packages that no program of a release links.
var testSupport = []string{"test", "gpuagent/nvml/simulator", "gpuagent/nvml/conformance"}

func TestProgramsLinkNoTestSupport(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/...").CombinedOutput()
	if err != nil {
		t.Fatalf("list packages of the programs: %v\n%s", err, out)
	}
	for linked := range strings.FieldsSeq(string(out)) {
		for _, forbidden := range testSupport {
			if isBelow(linked, module+"/"+forbidden) {
				t.Errorf("a program links %s", linked)
			}
		}
	}
}

func TestFindImpureImport(t *testing.T) {
	tests := []struct {
		folder, imported string
		impure           bool
	}{
		{"api/workload", "os", true},
		{"api/workload", "net/http", true},
		{"api/workload/deep", "k8s.io/client-go/rest", true},
		{"api/workload", "strings", false},
		{"api/workload", "osprey.example/os", false},
		{"api/workloads", "os", false},
		{"api/workloadkind", "sigs.k8s.io/controller-runtime/pkg/client", true},
		{"api/period", "os", true},
		{"gpuagent/mig", "github.com/NVIDIA/go-nvml/pkg/nvml", true},
		{"gpuagent/nvml", "github.com/NVIDIA/go-nvml/pkg/nvml", false},
		{"lifecycle/timelimit", "k8s.io/client-go/tools/events", true},
		{"lifecycle/timelimit/controller", "k8s.io/client-go/tools/events", false},
	}
	for _, tc := range tests {
		if got := findImpureImport(tc.folder, tc.imported); (got != "") != tc.impure {
			t.Errorf("%s importing %s: %q, want impure %v", tc.folder, tc.imported, got, tc.impure)
		}
	}
}

func TestImportRulesReject(t *testing.T) {
	tests := []struct {
		folder, imported string
		test, want       bool
	}{
		{"webhook", "api/v1alpha1", false, true},
		{"webhook", "lifecycle", false, false},
		{"webhook", "gpuagent/mig", false, false},
		{"lifecycle/migplan/planner", "gpuagent/mig", false, true},
		{"lifecycle/migplan/planner", "gpuagent/nvml", false, false},
		{"lifecycle/migplan/planner", "gpuagent/migration", false, false},
		{"gpuagent", "lifecycle", false, false},
		{"api/policytime", "policies", false, false},
		{"api/policytime", "api/period", false, true},
		{"cmd/webhook", "test/clustertest", false, false},
		{"cmd/sluice/commands", "test/lab/up", false, false},
		{"cmd/sluice/commands", "test/lab/up", true, false},
		{"test/e2e", "test/lab/cluster", true, false},
		{"test/lab/up", "test/lab/cluster", false, true},
		{"test/lab/up", "cmd/sluice/installation", false, true},
		{"test/lab/up", "cmd/sluice/commands", false, false},
		{"cmd/sluice", "cmd/sluice/commands", false, true},
		{"cmd/webhook", "cmd/sluice/commands", false, false},
		{"test/e2e", "cmd/sluice/commands", true, false},
		{"lifecycle/tenancy/project", "test/clustertest", true, true},
		{"lifecycle/tenancy/project", "test/clustertest", false, false},
		{"test/lab/cluster/fakekubelet", "api/v1alpha1", false, true},
		{"elsewhere", "api", false, false},
	}
	for _, tc := range tests {
		if got, why := importAllowed(tc.folder, tc.imported, tc.test); got != tc.want {
			t.Errorf("%s importing %s (test %v): allowed = %v (%s), want %v", tc.folder, tc.imported, tc.test, got, why, tc.want)
		}
	}
}
