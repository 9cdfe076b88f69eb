// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

func TestWorkloadKindsAsYAML(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds []v1alpha1.PodTemplates
		want  string
	}{
		"a kind": {[]v1alpha1.PodTemplates{{Kind: "Trainer.ml.example.org", Resource: "trainers", Version: "v1", Paths: []string{"spec.workers[*].template"}}}, `# kubectl apply --server-side --force-conflicts --field-manager=sluice-workload-kinds -f FILE
apiVersion: sluice.dev/v1alpha1
kind: AdmissionParameters
metadata:
  name: sluice
spec:
  podTemplates:
  - kind: Trainer.ml.example.org
    paths:
    - spec.workers[*].template
    resource: trainers
    version: v1
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: sluice
webhooks:
- name: added-workloads.sluice.dev
  rules:
  - apiGroups:
    - ml.example.org
    apiVersions:
    - v1
    operations:
    - CREATE
    resources:
    - trainers
    scope: Namespaced
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: sluice
webhooks:
- name: added-templates.sluice.dev
  rules:
  - apiGroups:
    - ml.example.org
    apiVersions:
    - v1
    operations:
    - CREATE
    - UPDATE
    resources:
    - trainers
    scope: Namespaced
`},
		"none": {nil, `# kubectl apply --server-side --force-conflicts --field-manager=sluice-workload-kinds -f FILE
apiVersion: sluice.dev/v1alpha1
kind: AdmissionParameters
metadata:
  name: sluice
spec: {}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: sluice
webhooks:
- name: added-workloads.sluice.dev
  rules: []
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: sluice
webhooks:
- name: added-templates.sluice.dev
  rules: []
`},
	} {
		t.Run(name, func(t *testing.T) {
			var output strings.Builder
			if err := printWorkloadKinds(&output, workloadKindObjects(tc.kinds)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, output.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestWorkloadKindsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		added v1alpha1.PodTemplates
		want  string
	}{
		"a kind":          {v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}}, ""},
		"no paths":        {v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers"}, "--resource, --path: required"},
		"no resource":     {v1alpha1.PodTemplates{Kind: "Trainer.example.org", Paths: []string{"spec.template"}}, "--resource, --path: required"},
		"a path":          {v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"metadata"}}, `--path "metadata": must be fields below spec`},
		"no group":        {v1alpha1.PodTemplates{Kind: "Trainer", Resource: "trainers", Paths: []string{"spec.template"}}, "must be a kind with its API group"},
		"a kind as known": {v1alpha1.PodTemplates{Kind: "Workflow.argoproj.io", Resource: "workflows", Paths: []string{"spec.template"}}, "whose templates Sluice does not evaluate yet"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkWorkloadKind(&tc.added)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
