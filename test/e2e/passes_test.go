// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sluice.dev/test/clustertest"
)

// pass is one way through the whole of Sluice.
type pass struct {
	way   string
	tests []func(*testing.T)
}

// passes are the tests that `make test` runs, in the order of their groups: one pass through each data path of
// docs/developer/architecture.md and through the main way of each role. `make test-all` runs all tests.
var passes = []struct {
	group string
	list  []pass
}{
	{"on GPUs without partitions", []pass{
		{"path 4. Demand", []func(*testing.T){TestGPUsArePartitionedOnDemand}},
	}},
	{"together", []pass{
		{"path 1. Pod", []func(*testing.T){TestPodAdmissionMatchesGoldenFiles}},
		{"path 2. Project", []func(*testing.T){TestProjectNamespaceLifecycle, TestProjectQuotaLifecycle}},
		{"way of a researcher", []func(*testing.T){TestSubmit, TestWhyAndWhoami}},
		{"way of an owner", []func(*testing.T){TestExtensions}},
		{"way of a platform team", []func(*testing.T){TestTour}},
	}},
	{"with changes of policies, time and nodes", []pass{
		{"way of a policy author", []func(*testing.T){TestPolicyTutorial}},
		{"path 3. Time", []func(*testing.T){TestWorkloadMail}},
		{"path 5. Use", []func(*testing.T){TestMemoryShares}},
	}},
}

const (
	// allTests is the value of SLUICE_TESTS with which all tests run, each on a cluster of its own that would damage the shared one.
	allTests    = "all"
	passesTests = "^(TestPasses|TestPassesAreComplete)$"
)

// lendShared makes newDedicatedCluster return the shared cluster.
var lendShared bool

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
		return flag.Set("test.skip", "^TestPasses$") // its tests run by themselves
	case "":
	default:
		return fmt.Errorf("SLUICE_TESTS is %q: set it to %q for all tests, or leave it unset for the passes", selected, allTests)
	}
	fmt.Fprintln(os.Stderr, "Running one pass for each data path and each role. `make test-all`, or SLUICE_TESTS=all, runs all tests.")
	return flag.Set("test.run", passesTests)
}

// TestPasses runs the passes on one cluster; only the tour starts its own, as it shows.
func TestPasses(t *testing.T) {
	lendShared = true
	for _, group := range passes {
		t.Run(group.group, func(t *testing.T) {
			for _, test := range slices.Concat(testsOf(group.list)...) {
				name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
				t.Run(name[strings.LastIndex(name, ".")+1:], test)
			}
		})
	}
}

func testsOf(list []pass) (tests [][]func(*testing.T)) {
	for _, p := range list {
		tests = append(tests, p.tests)
	}
	return tests
}

// Each data path of docs/developer/architecture.md has a pass.
func TestPassesAreComplete(t *testing.T) {
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "developer", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile(`(?m)^### ([0-9]+\. [A-Z][a-z]+):`).FindAllStringSubmatch(string(page), -1)
	if len(paths) != 5 {
		t.Errorf("the page has %d data paths, want five", len(paths))
	}
	ways := map[string]bool{}
	for _, group := range passes {
		for _, p := range group.list {
			ways[p.way] = len(p.tests) > 0
		}
	}
	for _, path := range paths {
		if !ways["path "+path[1]] {
			t.Errorf("data path %s has no pass", path[1])
		}
	}
}
