// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
	"sluice.dev/test/corpus"
)

// lines returns the findings about an object, one a line.
func lines(t *testing.T, auditor *audit.Auditor, tenants *audit.Tenants, text string) []string {
	t.Helper()
	tenant, err := tenants.Get("thesis")
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, text)
	if !audit.IsAudited(object, nil) {
		return []string{"not audited"}
	}
	findings, err := auditor.Evaluate(t.Context(), object, tenant)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, f := range findings {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s +%d %s", f.Policy, f.Enforcement, f.Result, f.Message, f.More, strings.Join(f.Changes, ","))))
	}
	return all
}

const (
	oldPod = `{apiVersion: v1, kind: Pod, metadata: {namespace: thesis, name: old, labels: {team: x}}, spec: {nodeName: n, containers: [{name: main, image: "a:latest", env: [{name: A, value: b}]}]}}`
	// oldWorkload is a workload of a kind; the verb is its kind.
	oldWorkload = `{apiVersion: %s, kind: %s, metadata: {namespace: thesis, name: old}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: "a:latest"}]}}}}`
)

// The findings are those of the policies about an object that is created as it is, without those that depend on the time, or on
// what an object gets after its creation.
func TestEvaluate(t *testing.T) {
	const denyLatest = `deny contains {"msg": "no latest", "field": "spec.containers", "fix": "pin it"} if endswith(input.object.spec.containers[_].image, ":latest")`
	tests := map[string]struct {
		policies []engine.Source
		object   string
		want     []string
	}{
		"a denial": {
			[]engine.Source{source("a", "", denyLatest)}, oldPod, []string{"a Deny Denied: spec.containers: no latest +0"},
		},
		"a policy in Warn": {
			[]engine.Source{source("a", v1alpha1.EnforcementWarn, denyLatest)}, oldPod, []string{"a Warn Denied: spec.containers: no latest +0"},
		},
		"a policy in DryRun": {
			[]engine.Source{source("a", v1alpha1.EnforcementDryRun, denyLatest)}, oldPod, []string{"a DryRun Denied: spec.containers: no latest +0"},
		},
		"two denials of one policy": {
			[]engine.Source{source("a", "", `deny contains msg if some msg in ["one", "two"]`)}, oldPod, []string{"a Deny Denied: one +1"},
		},
		"a warning": {
			[]engine.Source{source("a", "", `warn contains "careful"`)}, oldPod, []string{"a Deny Warned: careful +0"},
		},
		"an override": {
			[]engine.Source{source("a", "", `overrides := {"metadata": {"labels": {"team": "y"}}}`)},
			oldPod,
			[]string{"a Deny Changed: metadata.labels[team]: the object lacks what the policy sets +0 metadata.labels[team]"},
		},
		"an override in DryRun": {
			[]engine.Source{source("a", v1alpha1.EnforcementDryRun, `overrides := {"metadata": {"labels": {"team": "y"}}}`)},
			oldPod,
			[]string{"a DryRun Changed: metadata.labels[team]: the object lacks what the policy sets +0 metadata.labels[team]"},
		},
		"an override and a denial": {
			[]engine.Source{source("a", "", `overrides := {"metadata": {"labels": {"team": "y"}}}`+"\ndeny contains \"no\"")},
			oldPod,
			[]string{"a Deny Denied: no +0 metadata.labels[team]"},
		},
		"an override that holds": {
			[]engine.Source{source("a", "", `overrides := {"metadata": {"labels": {"team": "x"}}}`)}, oldPod, []string{},
		},
		"a removal": {
			[]engine.Source{source("a", "", `remove contains ["metadata", "labels", "team"]`)},
			oldPod,
			[]string{"a Deny Changed: metadata.labels[team]: the object lacks what the policy sets +0 metadata.labels[team]"},
		},
		"a default": {
			[]engine.Source{source("a", "", `defaults := {"metadata": {"labels": {"other": "y"}}}`)}, oldPod, []string{},
		},
		"the time": {
			[]engine.Source{source("a", "", `deny contains "closed" if input.now`+"\nwarn contains \"late\" if input.now")}, oldPod, []string{},
		},
		"the present use": {
			[]engine.Source{source("a", "", `deny contains "full" if input.use`)}, oldPod, []string{},
		},
		"what an object gets later": {
			[]engine.Source{source("a", "", `deny contains "bound" if input.object.spec.nodeName`+"\ndeny contains \"status\" if input.object.status.phase")},
			strings.Replace(oldPod, "spec:", "status: {phase: Running}, spec:", 1),
			[]string{},
		},
		"a policy for updates": {
			[]engine.Source{{Name: "a", Match: v1alpha1.PolicyMatch{Operations: []v1alpha1.PolicyOperation{"UPDATE"}}, Rego: "package a\ndeny contains \"no\""}},
			oldPod,
			[]string{},
		},
		"a policy of another project": {
			[]engine.Source{{Name: "a", Match: v1alpha1.PolicyMatch{Projects: []string{"other"}}, Rego: "package a\ndeny contains \"no\""}},
			oldPod,
			[]string{},
		},
		"a policy that fails": {
			[]engine.Source{source("a", v1alpha1.EnforcementWarn, `deny contains "no" if to_number(input.object.metadata.name) > 1`)},
			oldPod,
			[]string{`a Warn Failed: the policy a could not be evaluated: :2:23: to_number: strconv.ParseFloat: parsing "old": invalid syntax +0`},
		},
		"a conflict": {
			[]engine.Source{
				source("a", "", `overrides := {"metadata": {"labels": {"team": "y"}}}`), source("b", "", `overrides := {"metadata": {"labels": {"team": "z"}}}`),
			}, oldPod, []string{` Deny Denied: policies conflict: metadata.labels[team]: policy a sets "y", policy b sets "z" +0`},
		},
		"the creator": {
			[]engine.Source{source("a", "", `deny contains input.review.userInfo.username if input.review.userInfo.username != ""`)},
			strings.Replace(oldPod, "name: old,", "name: old, annotations: {sluice.dev/created-by: anna},", 1),
			[]string{"a Deny Denied: anna +0"},
		},
		"a secret": {
			[]engine.Source{source("a", "", `deny contains msg if msg := sprintf("value %s", [input.object.spec.containers[0].env[1].value])`)},
			strings.Replace(oldPod, "value: b}", "value: b}, {name: TOKEN, value: hunter2-hunter2}", 1),
			[]string{"a Deny Denied: value *** +0"},
		},
		"a finished pod": {
			[]engine.Source{source("a", "", `deny contains "no"`)}, strings.Replace(oldPod, "spec:", "status: {phase: Succeeded}, spec:", 1), []string{"not audited"},
		},
		"a pod that is being deleted": {
			[]engine.Source{source("a", "", `deny contains "no"`)},
			strings.Replace(oldPod, "name: old", `name: old, deletionTimestamp: "2026-01-01T00:00:00Z"`, 1),
			[]string{"not audited"},
		},
		"a template": {
			[]engine.Source{source("a", "", denyLatest), source("b", v1alpha1.EnforcementDryRun, denyLatest)},
			fmt.Sprintf(oldWorkload, "apps/v1", "Deployment"),
			[]string{
				"a Deny Denied: spec.template.spec.containers: no latest +0", "b DryRun Denied: spec.template.spec.containers: no latest +0",
			},
		},
		"a template that is changed": {
			[]engine.Source{source("a", "", `overrides := {"metadata": {"labels": {"team": "y"}}}`)}, fmt.Sprintf(oldWorkload, "apps/v1", "Deployment"), []string{},
		},
		"a template of a controlled object": {
			[]engine.Source{source("a", "", denyLatest)},
			strings.Replace(fmt.Sprintf(oldWorkload, "apps/v1", "ReplicaSet"), "name: old",
				"name: old, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, controller: true}]", 1),
			[]string{},
		},
		"a Job": {
			[]engine.Source{
				source("a", "", denyLatest),
				{Name: "b", Match: v1alpha1.PolicyMatch{Kinds: []string{"Job"}}, Rego: "package b\ndeny contains \"no jobs\""},
			},
			fmt.Sprintf(oldWorkload, "batch/v1", "Job"),
			[]string{"b Deny Denied: no jobs +0", "a Deny Denied: spec.template.spec.containers: no latest +0"},
		},
		"a template that is no object": {
			nil, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: thesis, name: old}, spec: {template: {spec: [1, 2]}}}`,
			[]string{" Deny Failed: decode pod: cannot restore struct from: slice +0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			auditor := newCluster(t, tc.policies...).Auditor(auditTime)
			got := lines(t, auditor, newTenants(newProject("thesis")), tc.object)
			if diff := cmp.Diff(trimmed(tc.want), got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func trimmed(all []string) []string {
	out := []string{}
	for _, line := range all {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// What the policies admit has no findings: the audit enforces nothing that admission does not set.
func TestAdmittedObjectsHaveNoFindings(t *testing.T) {
	cluster := newCluster(t, policies.BuiltIn()...)
	tenants := newTenants(newProject("thesis"))
	tenant, err := tenants.Get("thesis")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"without a GPU": `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}]}}`,
		"with a GPU":    `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`,
		"two containers": `{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {sluice.dev/workload-type: interactive}}, spec: {initContainers: [{name: i, image: a}],
			containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}, {name: side, image: a, env: [{name: A, value: b}]}]}}`,
		"a job": `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			decided, err := cluster.Decide(t.Context(), workbench.Request{
				Object: parse(t, text).Object, Tenant: tenant, Namespace: "thesis", User: "anna", Now: auditTime,
			})
			if err != nil || len(decided.Denials()) > 0 {
				t.Fatalf("%v, %v", err, decided.Denials())
			}
			object := parse(t, text)
			object.Object = decided.Object
			object.SetNamespace("thesis")
			findings, err := cluster.Auditor(auditTime).Evaluate(t.Context(), object, tenant)
			if err != nil || len(findings) > 0 {
				t.Errorf("%v, %+v", err, findings)
			}
		})
	}
}

// Hostile objects have bounded findings, and neither fail the audit nor end it.
func TestHostileObjects(t *testing.T) {
	auditor := newCluster(t, source("a", "", `deny contains "no" if input.object.spec.hostIPC`)).Auditor(auditTime)
	tenants := newTenants(newProject("thesis"))
	tenant, err := tenants.Get("thesis")
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range corpus.Pods() {
		t.Run(name, func(t *testing.T) {
			object := parse(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: thesis, name: hostile}}`)
			if err := object.UnmarshalJSON(raw); err != nil {
				t.Skipf("the API server does not decode it either: %v", err)
			}
			object.SetAPIVersion("v1")
			object.SetKind("Pod")
			object.SetNamespace("thesis")
			findings, err := auditor.Evaluate(t.Context(), object, tenant)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if len(f.Message) > 256 || len(f.Fix) > 256 || len(f.Changes) > 10 {
					t.Errorf("a finding is too large: %+v", f)
				}
			}
		})
	}
}

// Existing objects of an expired project stay allowed, and those of one that is being deleted end with it.
func TestTenants(t *testing.T) {
	closed, deleted, orphan := newProject("thesis"), newProject("deleted"), newProject("orphan")
	at := v1Time(auditTime)
	closed.Status.ClosedAt, deleted.DeletionTimestamp, orphan.Spec.Department = &at, &at, "gone"
	tenants := newTenants(closed, deleted, orphan)
	if tenants.Len() != 2 || tenants.Owns("deleted") || tenants.Owns("elsewhere") {
		t.Errorf("%d tenants", tenants.Len())
	}
	if _, err := tenants.Get("orphan"); err == nil || !strings.Contains(err.Error(), `there is no Department "gone"`) {
		t.Errorf("a project without department: %v", err)
	}
	const gpuPod = `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`
	cluster := newCluster(t, policies.BuiltIn()...)
	tenant, err := tenants.Get("thesis")
	if err != nil {
		t.Fatal(err)
	}
	decided, err := cluster.Decide(t.Context(), workbench.Request{
		Object: parse(t, gpuPod).Object, Tenant: tenant, Namespace: "thesis", User: "anna", Now: auditTime,
	})
	if err != nil || len(decided.Denials()) > 0 {
		t.Errorf("%v, %v", err, decided.Denials())
	}
}
