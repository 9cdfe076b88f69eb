// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pass is one way through the whole of Sluice.
type pass struct {
	way   string
	tests []string
}

// passes are the tests that `make test` runs: one pass through each data path of docs/developer/architecture.md
// and through the main way of each role. `make test-all` runs all tests.
var passes = []pass{
	{"path 1. Pod", []string{"TestPodAdmissionMatchesGoldenFiles"}},
	{"path 2. Project", []string{"TestProjectNamespaceLifecycle", "TestProjectQuotaLifecycle"}},
	{"path 3. Time", []string{"TestWorkloadMail"}},
	{"path 4. Demand", []string{"TestGPUsArePartitionedOnDemand"}},
	{"path 5. Use", []string{"TestMemoryShares"}},
	{"way of a researcher", []string{"TestSubmit", "TestWhyAndWhoami"}},
	{"way of an owner", []string{"TestExtensions"}},
	{"way of a platform team", []string{"TestTour"}},
	{"way of a policy author", []string{"TestPolicyTutorial"}},
}

// allTests is the value of SLUICE_TESTS with which all tests run.
const allTests = "all"

// selectPasses makes the passes the tests to run, unless -run, -bench or SLUICE_TESTS selects others.
func selectPasses() error {
	flag.Parse()
	for _, name := range []string{"test.run", "test.bench", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return nil
		}
	}
	switch selected := os.Getenv("SLUICE_TESTS"); selected {
	case allTests:
		return nil
	case "":
	default:
		return fmt.Errorf("SLUICE_TESTS is %q: set it to %q for all tests, or leave it unset for the passes", selected, allTests)
	}
	fmt.Fprintln(os.Stderr, "Running one pass for each data path and each role. `make test-all`, or SLUICE_TESTS=all, runs all tests.")
	return flag.Set("test.run", "^("+strings.Join(append(passTests(), "TestPassesAreTests"), "|")+")$")
}

func passTests() []string {
	var names []string
	for _, p := range passes {
		names = append(names, p.tests...)
	}
	return names
}

// Each pass is a test of this package, so that a renamed test does not leave `make test`, and each data path of
// docs/developer/architecture.md has a pass.
func TestPassesAreTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil {
				declared = append(declared, function.Name.Name)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "developer", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile(`(?m)^### ([0-9]+\. [A-Z][a-z]+):`).FindAllStringSubmatch(string(page), -1)
	if len(paths) != 5 {
		t.Errorf("the page has %d data paths, want five", len(paths))
	}
	for _, path := range paths {
		if !slices.ContainsFunc(passes, func(p pass) bool { return p.way == "path "+path[1] }) {
			t.Errorf("data path %s has no pass", path[1])
		}
	}
	for _, p := range passes {
		if len(p.tests) == 0 {
			t.Errorf("the %s has no test", p.way)
		}
		for _, name := range p.tests {
			if !slices.Contains(declared, name) {
				t.Errorf("the %s: there is no %s", p.way, name)
			}
		}
	}
}
