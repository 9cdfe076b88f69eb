// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/tester"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// compileBuiltIn are the built-in policies, which compile without a word.
func compileBuiltIn(t *testing.T) *engine.Set {
	t.Helper()
	set, reports, err := engine.Compile(policies.BuiltIn(), engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		for _, problem := range append(report.Problems, report.Warnings...) {
			t.Error(problem)
		}
	}
	return set
}

func TestBuiltInPoliciesCompile(t *testing.T) {
	want := []string{
		"core.affinity", "core.devices", "core.gpu", "core.jobs", "core.limits", "core.namespace", "core.nodepool", "core.priority", "core.project", "core.quota",
		"core.resources", "core.type", "schedulers.kai", "schedulers.kube-scheduler", "schedulers.kueue",
	}
	if diff := cmp.Diff(want, compileBuiltIn(t).Names()); diff != "" {
		t.Errorf("built-in policies (-want +got):\n%s", diff)
	}
}

// regoFilesIn are the files of Rego, by path.
func regoFilesIn(t *testing.T) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for _, folder := range []string{"core", "schedulers"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".rego") {
				return err
			}
			found[path], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestRegoIsFormatted(t *testing.T) {
	for path, text := range regoFilesIn(t) {
		formatted, err := format.SourceWithOpts(path, text, format.Opts{RegoVersion: ast.RegoV1})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if diff := cmp.Diff(string(formatted), string(text)); diff != "" {
			t.Errorf("%s is not as opa fmt has it (-formatted +is):\n%s", path, diff)
		}
	}
}

func TestRego(t *testing.T) {
	modules := make(map[string]*ast.Module)
	for path, text := range regoFilesIn(t) {
		module, err := ast.ParseModuleWithOpts(path, string(text), ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			t.Fatal(err)
		}
		modules[path] = module
	}
	runner := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithStrict(true).WithEnablePrintStatements(true)).
		SetModules(modules).
		RaiseBuiltinErrors(true)
	results, err := runner.RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(map[string]int)
	for result := range results {
		ran[result.Location.File]++
		if !result.Pass() {
			t.Errorf("%s %s: %s: %s", result.Location, result.Name, result, result.Output)
		}
	}
	for path := range modules {
		policy := strings.TrimSuffix(path, ".rego")
		if test := policy + "_test.rego"; !strings.HasSuffix(path, "_test.rego") && ran[test] == 0 {
			t.Errorf("%s has no test that ran in %s", path, test)
		}
	}
}
