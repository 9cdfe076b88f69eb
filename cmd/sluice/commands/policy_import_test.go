// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

const importDirectory = "testdata/policy/import"

// importPages are the sources with the pages that have the output of the command.
var importPages = map[string]struct{ source, page string }{
	"gatekeeper": {"gatekeeper", "from-gatekeeper.md"},
	"kyverno":    {"kyverno-validate", "from-kyverno.md"},
	"runai":      {"runai", "from-runai-policies.md"},
}

// The report is that of the documentation, the exit status says that something was not converted, and the written policies pass
// the check and their tests.
func TestPolicyImport(t *testing.T) {
	for name, tc := range importPages {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "policies")
			output, err := runCommand(t, "policy", "import", tc.source, filepath.Join(importDirectory, name), "--out", out)
			if err == nil || !strings.Contains(err.Error(), "--partial accepts them") {
				t.Errorf("the error is %v", err)
			}
			golden.Assert(t, output, "policy/import/"+name+".txt")
			page, err := os.ReadFile(filepath.Join("../../../docs/platform", tc.page))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), output) {
				t.Errorf("%s does not have the output", tc.page)
			}
			if output, err := runCommand(t, "policy", "check", out); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
			if output, err := runCommand(t, "policy", "test", out); err != nil || !strings.Contains(output, " 0 failed") {
				t.Errorf("%v\n%s", err, output)
			}
			if _, err := runCommand(t, "policy", "import", tc.source, filepath.Join(importDirectory, name), "--out", out, "--partial"); err == nil ||
				!strings.Contains(err.Error(), "--force replaces them") {
				t.Errorf("existing files: the error is %v", err)
			}
			if _, err := runCommand(t, "policy", "import", tc.source, filepath.Join(importDirectory, name), "--out", out, "--partial", "--force"); err != nil {
				t.Errorf("with --force: %v", err)
			}
		})
	}
}

// Without --out nothing is written, and -o json has the report.
func TestPolicyImportReport(t *testing.T) {
	output, err := runCommand(t, "policy", "import", "runai", filepath.Join(importDirectory, "runai"), "-o", "json", "--partial")
	if err != nil {
		t.Fatal(err)
	}
	var report importReport
	if err := json.Unmarshal([]byte(output), &report); err != nil || len(report.Entries) != 1 || len(report.Files) != 0 {
		t.Errorf("the report is %s, %v", output, err)
	}
	if gaps := report.Entries[0].Gaps; len(gaps) != 1 || gaps[0].Part != "priorityClass" {
		t.Errorf("the gaps are %v", gaps)
	}
}

func TestPolicyImportErrors(t *testing.T) {
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"an unknown source": {[]string{"opa", empty}, `unknown source "opa"`},
		"no directory":      {[]string{"runai", filepath.Join(empty, "x")}, "no such file"},
		"a file":            {[]string{"runai", filepath.Join(importDirectory, "runai/workspaces.yaml")}, "is not a directory"},
		"nothing":           {[]string{"gatekeeper", empty}, "has no policies of gatekeeper"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runCommand(t, append([]string{"policy", "import"}, tc.arguments...)...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}
