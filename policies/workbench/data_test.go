// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"strings"
	"testing"
)

// A folder with a policy that reads a ConfigMap and objects, and with both.
func dataFolder() map[string]string {
	return map[string]string{
		"a.yaml": `apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: a}
spec:
  rego: |
    package a

    deny contains sprintf("%s: not of %s", [c.image, data.config.registries.allowed]) if {
      some c in input.object.spec.containers
      not allowed(c.image)
    }
    allowed(image) if { some prefix in data.config.registries.allowed; startswith(image, prefix) }
    deny contains "the volume is not fast" if {
      some volume in input.object.spec.volumes
      claim := data.objects.PersistentVolumeClaim[input.review.namespace][volume.persistentVolumeClaim.claimName]
      claim.spec.storageClassName != "fast"
    }
`,
		"data.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: registries, labels: {sluice.dev/policy-data: "true"}}
data:
  allowed.yaml: "[registry.example.org/]"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data: {a.json: "{"}
---
apiVersion: sluice.dev/v1alpha1
kind: AdmissionParameters
metadata: {name: sluice}
spec:
  policyData: [{apiVersion: v1, kind: PersistentVolumeClaim}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: slow, namespace: sample}
spec: {storageClassName: slow}
`,
		"a_test.rego": `package a_test

import data.a

image(i) := {"object": {"spec": {"containers": [{"image": i}]}}}

test_data_of_the_folder if count(a.deny) == 0 with input as image("registry.example.org/x")
test_other_data if count(a.deny) == 1 with input as image("registry.example.org/x") with data.config.registries.allowed as []
test_objects if data.objects.PersistentVolumeClaim.sample.slow.spec.storageClassName == "slow"
`,
		"a.case.yaml": `name: another registry
object: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: docker.io/x}]}}
expect: {denied: ['docker.io/x: not of ["registry.example.org/"]']}
---
name: a slow volume
object:
  apiVersion: v1
  kind: Pod
  metadata: {name: p}
  spec:
    containers: [{name: main, image: registry.example.org/x}]
    volumes: [{name: v, persistentVolumeClaim: {claimName: slow}}]
expect: {denied: [the volume is not fast]}
---
name: allowed
object: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: registry.example.org/x}]}}
expect: {allowed: true}
`,
	}
}

func TestFolderHasData(t *testing.T) {
	folder, err := load(t, dataFolder())
	if err != nil {
		t.Fatal(err)
	}
	cases, err := folder.RunCases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tests, _, err := folder.RunUnitTests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 3 || len(tests) != 3 {
		t.Errorf("%d cases and %d unit tests, want 3 each", len(cases), len(tests))
	}
	for _, outcome := range append(cases, tests...) {
		if !outcome.Passed() {
			t.Errorf("%s: %+v", outcome.Name, outcome.Failures)
		}
	}
}

func TestFolderNamesFaultsOfData(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"a key that does not parse": {`"[registry.example.org/]"`, `"["`, "ConfigMap registries: key allowed.yaml: parse YAML"},
		"another namespace": {
			`{name: registries,`, `{name: registries, namespace: default,`,
			"ConfigMap registries: metadata.namespace: policies read ConfigMaps of sluice-system only",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := dataFolder()
			files["data.yaml"] = strings.Replace(files["data.yaml"], tc.old, tc.new, 1)
			folder, err := load(t, files)
			if err == nil {
				_, err = folder.RunCases(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	files := dataFolder()
	files["data.yaml"] = strings.Replace(files["data.yaml"], "name: registries", "name: another", 1)
	folder, err := load(t, files)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := folder.RunCases(t.Context())
	if err != nil || outcomes[2].Passed() || !strings.Contains(outcomes[2].Failures[0].Diff, "data.config.registries does not exist") {
		t.Errorf("a missing ConfigMap: %+v, %v", outcomes, err)
	}
}
