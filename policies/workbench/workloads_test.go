// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies/workbench"
)

// A denial of a workload begins once with whose pods would be denied, as in the cluster. An object whose pods are known only
// when they are created is no silent success.
func TestDecideWorkloads(t *testing.T) {
	const template = "{metadata: {labels: {x: \"1\"}}, spec: {containers: [{name: main, image: i}]}}"
	folder, err := load(t, map[string]string{
		"a.yaml": strings.Replace(policyYAML, "spec:\n", "spec:\n  parameters: {x: \"1\"}\n", 1),
		"parameters.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: AdmissionParameters\nmetadata: {name: sluice}\n" +
			"spec: {podTemplates: [{kind: Trainer.example.org, resource: trainers, paths: [\"spec.workers[*].template\"]}]}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := workbench.NewCluster(folder.Sources(nil))
	if err != nil {
		t.Fatal(err)
	}
	tenant, namespace, err := folder.Tenant("", time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		object   string
		denials  []string
		atThePod string // a part
		err      string // a part
	}{
		"a Deployment": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: " + template + "}",
			[]string{"pods of Deployment web would be denied: spec.template: no (policy a)"},
			"", "",
		},
		"an added kind with two templates": {
			"apiVersion: example.org/v1\nkind: Trainer\nmetadata: {generateName: t-}\nspec: {workers: [{template: " + template + "}, {template: " + template + "}]}",
			[]string{"pods of Trainer t-* would be denied: spec.workers[0].template: no (policy a)", "spec.workers[1].template: no (policy a)"},
			"", "",
		},
		"a pod": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {x: \"1\"}}\nspec: {containers: [{name: main, image: i}]}", []string{"no (policy a)"}, "", "",
		},
		"a workflow": {
			"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {templates: [{container: {image: i}}, {container: {image: \"{{x}}\"}}]}",
			nil, "templates with `podSpecPatch`", "",
		},
		"Spark":                         {"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication", nil, "", "only for its pods when they are created: spark-submit composes"},
		"a Deployment without template": {"apiVersion: apps/v1\nkind: Deployment", nil, "", "no policy is evaluated for this Deployment.apps: it has no pod template in spec.template"},
		"an unknown kind":               {"apiVersion: example.com/v1\nkind: Trainer", nil, "", "has no pod template that Sluice knows"},
		"no kind":                       {"spec: {}", nil, "", "an object without a kind"},
	} {
		t.Run(name, func(t *testing.T) {
			request := workbench.Request{Tenant: tenant, Namespace: namespace, User: "anna", Now: time.Unix(1_800_000_000, 0)}
			if err := yaml.Unmarshal([]byte(tc.object), &request.Object); err != nil {
				t.Fatal(err)
			}
			decision, err := cluster.Decide(t.Context(), request)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.denials, decision.Denials()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !strings.Contains(decision.AtThePod, tc.atThePod) || (tc.atThePod == "") != (decision.AtThePod == "") {
				t.Errorf("at the pod: %q", decision.AtThePod)
			}
		})
	}
}
