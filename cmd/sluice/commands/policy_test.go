// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"sluice.dev/policies/check"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	check.RunIfChild()
	clustertest.Main(m)
}

// The command prints what the webhook would refuse and warn of, and fails if there is a problem.
func TestPolicyCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	const text = `apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: good}
spec:
  rego: |
    package good
    warn contains "x" if input.object.spec.nodename
---
apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: bad}
spec:
  parameters: {maxGpus: 1}
  parametersSchema: {type: object, properties: {maxGPUs: {type: integer}}}
  rego: |
    package bad
    deny contains "x" if input.workload.gpu > input.parameters.maxGPUs
---
apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: own-class}
spec:
  rego: |
    package own_class
    overrides := {"spec": {"runtimeClassName": "a", "schedulerName": "mine"}}
---
apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: other-class}
spec:
  rego: |
    package other_class
    overrides := {"spec": {"runtimeClassName": "b"}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := runCommand(t, "policy", "check", file)
	if err == nil || err.Error() != "policies with problems: 1" {
		t.Errorf("err = %v", err)
	}
	golden.Assert(t, output, "policy/check.txt")
	var list strings.Builder
	list.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for document := range strings.SplitSeq(text, "---\n") {
		list.WriteString("- " + strings.ReplaceAll(strings.TrimSuffix(document, "\n"), "\n", "\n  ") + "\n")
	}
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if ofList, _ := runCommand(t, "policy", "check", file); ofList != output {
		t.Errorf("a list of the policies: %s", cmp.Diff(output, ofList))
	}
	for name, want := range map[string]string{
		"interactive-at-most-one-gpu.yaml": "interactive-at-most-one-gpu: no problems\n",
		"registries.yaml":                  "registries: no problems\nown-registries: no problems\n",
	} {
		sample := filepath.Join("..", "..", "..", "manifests", "samples", "policies", name)
		if output, err := runCommand(t, "policy", "check", sample); err != nil || output != want {
			t.Errorf("the sample %s: %q, %v", name, output, err)
		}
	}
	if _, err := runCommand(t, "policy", "check", filepath.Join("testdata", "usage", "all.json")); err == nil {
		t.Error("a file that is no policy was accepted")
	}
}
