// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// laterFolders are the folders that only `make test-all` tests, with those below them and the reason of each.
var laterFolders = map[string]string{
	"test/lab/cluster/kwok": "waits for four minutes until Kubernetes has given up a node",
	"test/e2e/hostile":      "attacks a whole cluster",
	"test/installation":     "installs with Helm",
	"test/scale":            "loads a cluster of a thousand nodes",
}

var (
	// laterPackages is the line of the Makefile with these folders.
	laterPackages = regexp.MustCompile(`(?m)^LATER_PACKAGES := (.+)$`)
	// testPackages is the line that makes all others the packages of `make test`.
	testPackages = "\ntest: PKG ?= ./test/e2e $(filter-out $(LATER_PACKAGES:%=sluice.dev/%) $(LATER_PACKAGES:%=sluice.dev/%/%),$(shell $(WORKSPACE) go list ./... ./test/lab/...))\n"
	allPackages  = "\ntest-all: PKG ?= ./test/e2e ./... ./test/lab/...\n"
)

// findUntested returns a message for each module with tests that `make test-all` does not test, and for each
// folder of LATER_PACKAGES that has no test or no reason. tested has the folders of test files, modules those of
// go.mod.
func findUntested(makefile string, tested, modules []string, reasons map[string]string) []string {
	_, all, found := strings.Cut(makefile, "\ntest-all: build-tests")
	all, _, _ = strings.Cut(all, "\n\n")
	later := laterPackages.FindStringSubmatch(makefile)
	if !found || later == nil || !strings.Contains(makefile, allPackages) || !strings.Contains(makefile, testPackages) {
		return []string{"the Makefile has no LATER_PACKAGES, no target test for all others, or no target test-all for ./... and ./test/lab/..."}
	}
	hasTests := func(folder string) bool {
		return slices.ContainsFunc(tested, func(of string) bool { return isBelow(of, folder) })
	}
	var problems []string
	for _, module := range modules {
		if module != "." && module != "test/lab" && hasTests(module) && !strings.Contains(all, "go test -C "+module+" ") {
			problems = append(problems, "make test-all does not test the module "+module)
		}
	}
	for folder := range strings.FieldsSeq(later[1]) {
		if !hasTests(folder) {
			problems = append(problems, folder+" in LATER_PACKAGES has no test")
		}
		if reasons[folder] == "" {
			problems = append(problems, folder+" in LATER_PACKAGES has no reason")
		}
	}
	return problems
}

// Each test is in one of the layers: `make test-all` runs all, and `make test` those of the packages that are not in
// LATER_PACKAGES; of test/e2e it runs the passes.
func TestEachTestIsInALayer(t *testing.T) {
	root := filepath.Join("..", "..")
	raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var tested, modules []string
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, at)
		if entry.IsDir() && at != root && (strings.HasPrefix(entry.Name(), ".") || relative == "bin" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		folder := filepath.ToSlash(filepath.Dir(relative))
		switch {
		case entry.Name() == "go.mod":
			modules = append(modules, folder)
		case strings.HasSuffix(entry.Name(), "_test.go"):
			tested = append(tested, folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tested) < 100 || len(modules) < 3 {
		t.Fatalf("found %d test files and %d modules: the test reads the wrong folder", len(tested), len(modules))
	}
	for _, problem := range findUntested(string(raw), tested, modules, laterFolders) {
		t.Error(problem)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "developer", "tests.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, listed, found := strings.Cut(string(page), "```text\n")
	listed, _, _ = strings.Cut(listed, "```")
	for folder := range strings.FieldsSeq(listed) {
		if !slices.Contains(tested, folder) {
			t.Errorf("docs/developer/tests.md lists %s, which has no tests", folder)
		}
	}
	if !found || listed == "" {
		t.Error("docs/developer/tests.md has no list of packages that passed beside load")
	}
}

func TestFindUntested(t *testing.T) {
	makefile := "LATER_PACKAGES := a b\n" + testPackages + allPackages + "test-all: build-tests ## All\n\tgo test -C m ./...\n\nother: build\n\tgo test -C n ./...\n"
	const none = "the Makefile has no LATER_PACKAGES, no target test for all others, or no target test-all for ./... and ./test/lab/..."
	tests := map[string]struct {
		makefile        string
		tested, modules []string
		want            string
	}{
		"all tested":                 {makefile, []string{"a/deep", "b", "m"}, []string{".", "m", "n"}, ""},
		"a module that is missing":   {makefile, []string{"a", "b", "n/deep"}, []string{".", "n"}, "make test-all does not test the module n"},
		"a folder without tests":     {makefile, []string{"b", "ab"}, []string{"."}, "a in LATER_PACKAGES has no test"},
		"no packages that are later": {strings.Replace(makefile, "LATER", "", 1), nil, nil, none},
		"not all packages":           {strings.Replace(makefile, allPackages, "\n", 1), nil, nil, none},
		"not all others":             {strings.Replace(makefile, testPackages, "\n", 1), nil, nil, none},
		"a folder without a reason":  {strings.Replace(makefile, "a b", "a b c", 1), []string{"a", "b", "c"}, []string{"."}, "c in LATER_PACKAGES has no reason"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(findUntested(tc.makefile, tc.tested, tc.modules, map[string]string{"a": "slow", "b": "slow"}), "; "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
