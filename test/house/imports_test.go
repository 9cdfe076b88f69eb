// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"strings"
	"testing"
)

// allowedImports says which parts of the house each part may import, itself aside.
// A part that is not listed here may import nothing of ours.
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

// ioFreePackages are the packages that do no I/O, and what would be I/O.
var (
	ioFreePackages = []string{"api/workload", "gpuagent/mig", "api/period"}
	ioPackages     = []string{"net", "os", "io/fs", "syscall", "golang.org/x/sys", "k8s.io/client-go", "sigs.k8s.io/controller-runtime/pkg/client", "github.com/NVIDIA"}
)

// importAllowed tells whether a file in folder may import the package at path, both
// relative to the module; and if not, why.
func importAllowed(folder, imported string, test bool) (bool, string) {
	part, _, _ := strings.Cut(folder, "/")
	target, _, _ := strings.Cut(imported, "/")
	switch {
	case target == "cmd" && !isBelow(folder, strings.Join(firstElements(imported, 2), "/")):
		return false, "nothing imports cmd"
	case part == target:
		return true, ""
	case isBelow(imported, "test/cluster"):
		return test || isBelow(folder, "cmd/sluice"), "only cmd/sluice and tests import test/cluster"
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
					t.Errorf("%s/%s imports %s: %s", f.folder, f.name, imported, why)
				}
				continue
			}
			if f.isTest() {
				continue
			}
			for _, folder := range ioFreePackages {
				for _, forbidden := range ioPackages {
					if isBelow(f.folder, folder) && isBelow(imported, forbidden) {
						t.Errorf("%s/%s imports %s: %s does no I/O", f.folder, f.name, imported, folder)
					}
				}
			}
		}
	}
}

// The rules themselves, tried on imports that must be refused.
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
		{"cmd/webhook", "test/cluster", false, false},
		{"cmd/sluice/commands", "test/cluster/process", false, true},
		{"cmd/sluice", "cmd/sluice/commands", false, true},
		{"cmd/webhook", "cmd/sluice/commands", false, false},
		{"test/e2e", "cmd/sluice/commands", true, false},
		{"lifecycle/tenancy/project", "test/cluster", true, true},
		{"lifecycle/tenancy/project", "test/cluster", false, false},
		{"test/cluster/fakekubelet", "api/v1alpha1", false, true},
		{"elsewhere", "api", false, false},
	}
	for _, tc := range tests {
		if got, why := importAllowed(tc.folder, tc.imported, tc.test); got != tc.want {
			t.Errorf("%s importing %s (test %v): allowed = %v (%s), want %v", tc.folder, tc.imported, tc.test, got, why, tc.want)
		}
	}
}
