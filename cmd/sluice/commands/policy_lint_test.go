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

	"sluice.dev/policies/lint"
)

// writeFiles writes files to a folder, by name.
func writeFiles(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mistake is an error that authors of policies make.
type mistake struct {
	name, spec, rego string
	// code is that of the finding.
	code string
}

// mistakes are the ten that are most frequent.
var mistakes = []mistake{
	{"syntax", "", "deny contains {\"msg\": \"too many GPUs\", \"fix\": \"request fewer\"} if {\n\tinput.workload.devices > 2\n", "SL002"},
	{"old-rego", "", "deny[msg] {\n\tinput.workload.devices > 2\n\tmsg := \"too many GPUs\"\n}\n", "SL002"},
	{"undefined-field", "", "deny contains {\"msg\": \"too many GPUs\", \"fix\": \"request fewer\"} if input.workload.gpu > 2\n", "SL002"},
	{"parameter-type", "spec:\n  parameters: {maxGPUs: two}\n  parametersSchema:\n    type: object\n    required: [maxGPUs]\n    properties:\n      maxGPUs: {type: integer}\n", "deny contains {\"msg\": \"too many GPUs\", \"fix\": \"request fewer\"} if input.workload.devices > input.parameters.maxGPUs\n", "SL002"},
	{"conflict", "", "overrides := {\"spec\": {\"schedulerName\": \"mine\"}}\n", "SL103"},
	{"slow", "", "deny contains {\"msg\": \"too many GPUs\", \"fix\": \"request fewer\"} if {\n\tproducts := [x |\n\t\tsome a in numbers.range(1, 3000)\n\t\tsome b in numbers.range(1, 3000)\n\t\tx := a * b\n\t]\n\tinput.workload.devices > count(products)\n}\n", "SL117"},
	{"never-matching", "", "deny contains {\"msg\": \"too many replicas\", \"fix\": \"use fewer\"} if {\n\tinput.object.kind == \"Deployment\"\n\tinput.workload.devices > 2\n}\n", "SL107"},
	{"time", "", "deny contains {\"msg\": \"not at night\", \"fix\": \"start it in the morning\"} if {\n\t[hour, _, _] := time.clock(time.parse_rfc3339_ns(input.now))\n\thour < 6\n}\n\ndeny contains {\"msg\": \"not at weekends\", \"fix\": \"start it on Monday\"} if {\n\ttime.weekday(time.now_ns()) in {\"Saturday\", \"Sunday\"}\n}\n", "SL113"},
	{"missing-import", "", "deny contains {\"msg\": \"no GPUs\", \"fix\": \"request none\"} if request.includes_gpu\n", "SL002"},
	{"broad-match", "", "deny contains {\"msg\": \"too many GPUs\", \"fix\": \"request fewer\"} if {\n\tinput.project.name == \"course-ml\"\n\tinput.workload.devices > 2\n}\n", "SL115"},
}

// Each mistake is found before the policy is applied, and the documentation shows exactly what the author sees.
func TestPolicyLintFindsTypicalMistakes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "platform", "policy-workbench.md"))
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, m := range mistakes {
		folder := t.TempDir()
		writeFiles(t, folder, map[string]string{
			m.name + ".yaml":      "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: " + m.name + "}\n" + m.spec,
			m.name + ".rego":      "package " + strings.ReplaceAll(m.name, "-", "_") + "\n\n" + m.rego,
			m.name + "_test.rego": "package " + strings.ReplaceAll(m.name, "-", "_") + "_test\n",
		})
		t.Chdir(folder)
		output, err := runCommand(t, "policy", "lint", m.name+".yaml", "--strict")
		if err == nil {
			t.Errorf("%s: no mistake was found", m.name)
		}
		if !strings.Contains(output, " "+m.code+": ") {
			t.Errorf("%s: no finding %s in\n%s", m.name, m.code, output)
		}
		if !strings.Contains(string(page), output) {
			t.Errorf("the page policy-workbench.md does not have\n%s", output)
		}
		all.WriteString("# " + m.name + "\n" + output + "\n")
	}
	t.Chdir(here)
	golden.Assert(t, all.String(), "policy/mistakes.txt")
}

func TestPolicyLint(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(imagePolicies)); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, folder, map[string]string{
		"other.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: other}\nspec:\n  rego: |\n    package other\n    warn contains \"x\" if input.workload.devices>1\n",
	})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	output, lintErr := runCommand(t, "policy", "lint")
	asJSON, jsonErr := runCommand(t, "policy", "lint", "no-latest.rego", "other.yaml", "-o", "json")
	fixed, fixErr := runCommand(t, "policy", "lint", "--fix", "other.yaml")
	t.Chdir(here)
	if lintErr != nil || jsonErr != nil || fixErr != nil {
		t.Errorf("%v, %v, %v", lintErr, jsonErr, fixErr)
	}
	golden.Assert(t, output, "policy/lint.txt")
	golden.Assert(t, asJSON, "policy/lint.json")
	golden.Assert(t, fixed, "policy/lint-fix.txt")
	var findings []lint.Finding
	if err := json.Unmarshal([]byte(asJSON), &findings); err != nil || len(findings) == 0 || findings[0].Line == 0 {
		t.Errorf("%v, %v", findings, err)
	}
}

func TestPolicyLintFails(t *testing.T) {
	folder := t.TempDir()
	writeFiles(t, folder, map[string]string{
		"a.yaml":      "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec:\n  rego: |\n    package a\n\n    deny contains {\"msg\": \"x\", \"fix\": \"y\"} if input.oldObject\n",
		"a.case.yaml": "name: a\nobjekt: {}\n",
		"b.case.yaml": "name: b\nobject: {apiVersion: v1, kind: Pod}\nexpect: {allowed: true}\n",
	})
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"an error":    {[]string{folder}, "findings: 1 errors, 1 warnings"},
		"a warning":   {[]string{filepath.Join(folder, "a.yaml"), "--strict"}, "findings: 1 errors, 1 warnings"},
		"no such one": {[]string{filepath.Join(folder, "c.yaml")}, "no such file"},
		"no policies": {[]string{t.TempDir()}, "no policies found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runCommand(t, append([]string{"policy", "lint"}, tc.arguments...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}

// The page has the table of codes.
func TestPolicyLintCodes(t *testing.T) {
	output, err := runCommand(t, "policy", "lint", "--codes")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "platform", "policy-workbench.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range lint.Codes() {
		row := "| `" + code.ID + "` | " + string(code.Severity) + " | " + code.Description + " |\n"
		if !strings.Contains(string(page), row) {
			t.Errorf("the page policy-workbench.md does not have\n%s", row)
		}
		if !strings.Contains(output, code.ID) {
			t.Errorf("the output does not have %s", code.ID)
		}
	}
}
