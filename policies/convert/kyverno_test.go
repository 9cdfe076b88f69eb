// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"sluice.dev/policies/convert"
	"sluice.dev/policies/workbench"
)

// Ten policies of our own decide as Kyverno's documentation says: the cases beside them are written by hand.
func TestKyvernoPolicies(t *testing.T) {
	compareWithCases(t, "testdata/kyverno", convert.Kyverno)
}

// compareWithCases converts each file of a directory alone, and runs the cases beside it.
func compareWithCases(
	t *testing.T, directory string, from func(context.Context, []convert.File, convert.Checker) (*convert.Result, error),
) {
	t.Helper()
	for _, file := range filesOf(t, directory) {
		if strings.HasSuffix(file.Name, ".case.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(file.Name, ".yaml"), func(t *testing.T) {
			cases, err := os.ReadFile(filepath.Join(directory, strings.TrimSuffix(file.Name, ".yaml")+".case.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			result, err := from(t.Context(), []convert.File{file}, inProcess)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range result.Entries {
				if entry.Status != convert.StatusConverted {
					t.Errorf("%s: %s: %v", entry.Object, entry.Status, entry.Gaps)
				}
			}
			runCases(t, result, cases)
		})
	}
}

// runCases runs the cases of a result, and hand-written ones, with its policies.
func runCases(t *testing.T, result *convert.Result, cases []byte) {
	t.Helper()
	files := fstest.MapFS{"written-by-hand.case.yaml": {Data: cases}}
	for _, file := range convert.Files(result) {
		files[file.Name] = &fstest.MapFile{Data: file.Text}
	}
	folder, err := workbench.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := folder.RunCases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range outcomes {
		for _, failure := range outcome.Failures {
			t.Errorf("%s: %s\n%s", outcome.Name, failure.Message, failure.Diff)
		}
	}
	if t.Failed() {
		for i := range result.Policies {
			t.Log(result.Policies[i].Policy.Spec.Rego)
		}
	}
}
