// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

var testTarget = Target{Kind: SubjectProject, Name: "thesis", Namespace: "thesis-ns"}

type fields = map[string]any

func newFields(apiVersion, kind string, metadata, spec fields) fields {
	return fields{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}
}

// newLimitRange returns a LimitRange with a default request of CPU.
func newLimitRange(name string, cpu string) fields {
	return newFields("v1", "LimitRange", fields{"name": name}, fields{"limits": []any{fields{"type": "Container", "defaultRequest": fields{"cpu": cpu}}}})
}

func withField(o fields, key string, value any) fields {
	o[key] = value
	return o
}

func newRendering(objects ...engine.Object) engine.Rendering {
	return engine.Rendering{Objects: objects}
}

func renderedBy(policy string, value fields) engine.Object {
	return engine.Object{Policy: policy, Value: value}
}

func TestValidateCompletesObjects(t *testing.T) {
	given := newLimitRange("b", "500m")
	given["metadata"] = fields{
		"name": "b", "namespace": "thesis-ns", "annotations": fields{"why": "so"},
		"labels": fields{"team": "x", v1alpha1.LabelProject: "another", v1alpha1.LabelNodePool: "dgx", v1alpha1.LabelManagedBy: "helm"},
	}
	wanted := Validate(newRendering(renderedBy("p", given), renderedBy("p", newLimitRange("a", "1")), renderedBy("q", newLimitRange("a", "1"))), testTarget)
	if len(wanted.Failures) > 0 || len(wanted.Objects) != 2 {
		t.Fatalf("wanted = %+v", wanted)
	}
	want := fields{
		"apiVersion": "v1", "kind": "LimitRange",
		"metadata": fields{
			"name": "b", "namespace": "thesis-ns", "annotations": fields{"why": "so"},
			"labels": fields{"team": "x", v1alpha1.LabelProject: "thesis", v1alpha1.LabelManagedBy: "sluice"},
		},
		"spec": newLimitRange("b", "500m")["spec"],
	}
	if diff := cmp.Diff(want, wanted.Objects[1].Object); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if first := wanted.Objects[0]; first.GetName() != "a" || first.GetNamespace() != "thesis-ns" {
		t.Errorf("the first is %v", first.Object)
	}
}

func TestValidateRejects(t *testing.T) {
	tests := map[string]struct {
		value       fields
		quota       bool
		wantMessage []string
	}{
		"a role binding": {
			newFields("rbac.authorization.k8s.io/v1", "RoleBinding", fields{"name": "admin"}, nil), false,
			[]string{"policy p", "rbac.authorization.k8s.io/v1 RoleBinding admin", "v1 ResourceQuota", "v1 LimitRange", "networking.k8s.io/v1 NetworkPolicy"},
		},
		"a secret":                {newFields("v1", "Secret", fields{"name": "s"}, nil), false, []string{"v1 Secret s"}},
		"a quota of another API":  {newFields("quota.example.org/v1", "ResourceQuota", fields{"name": "s"}, nil), true, []string{"quota.example.org/v1 ResourceQuota s"}},
		"of another namespace":    {newFields("v1", "ResourceQuota", fields{"name": "s", "namespace": "kube-system"}, fields{}), true, []string{"kube-system", "thesis-ns", "leave metadata.namespace out"}},
		"with an owner":           {newFields("v1", "LimitRange", fields{"name": "s", "ownerReferences": []any{}, "finalizers": []any{}}, fields{}), false, []string{"metadata.ownerReferences", "metadata.finalizers", "metadata.name, metadata.namespace"}},
		"with a status":           {withField(newQuotaPart(fields{"pods": "1"}), "status", fields{"hard": fields{}}), true, []string{"ResourceQuota sluice", "status may not be set by a policy"}},
		"with an unknown field":   {newFields("v1", "ResourceQuota", fields{"name": "s"}, fields{"hrad": fields{}}), true, []string{"hrad"}},
		"with what is no number":  {newQuotaPart(fields{"pods": "many"}), true, []string{"ResourceQuota sluice"}},
		"with labels of no value": {newFields("v1", "LimitRange", fields{"name": "s", "labels": fields{"a": true}}, fields{}), false, []string{"LimitRange s"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := Validate(newRendering(renderedBy("p", tc.value)), testTarget)
			if len(wanted.Objects) != 0 || len(wanted.Failures) != 1 || wanted.Failures[0].AffectsQuota != tc.quota {
				t.Fatalf("wanted = %+v", wanted)
			}
			for _, want := range append(tc.wantMessage, "policy p: ") {
				if got := wanted.Failures[0].String(); !strings.Contains(got, strings.TrimSuffix(want, ": ")) {
					t.Errorf("failure %q does not contain %q", got, want)
				}
			}
		})
	}
}

func TestValidateRejectsConflictingObjects(t *testing.T) {
	wanted := Validate(newRendering(renderedBy("p", newLimitRange("a", "1")), renderedBy("q", newLimitRange("a", "2")), renderedBy("q", newLimitRange("b", "2"))), testTarget)
	if len(wanted.Objects) != 1 || wanted.Objects[0].GetName() != "b" {
		t.Errorf("objects = %+v", wanted.Objects)
	}
	if len(wanted.Failures) != 1 || !strings.Contains(wanted.Failures[0].String(), "policy q: policy p renders LimitRange a, too") {
		t.Errorf("failures = %v", wanted.Failures)
	}
}

func TestValidateReportsFailedPolicies(t *testing.T) {
	r := newRendering(renderedBy("p", newLimitRange("a", "1")))
	r.Failures = []engine.Failure{
		{Policy: "slow", Enforcement: v1alpha1.EnforcementDeny, Err: errors.New("too slow")},
		{Policy: "trial", Enforcement: v1alpha1.EnforcementDryRun, Err: errors.New("wrong")},
	}
	wanted := Validate(r, testTarget)
	if len(wanted.Objects) != 1 || len(wanted.Failures) != 1 || !wanted.Failures[0].AffectsQuota || wanted.Failures[0].String() != "policy slow: too slow" {
		t.Errorf("wanted = %+v", wanted)
	}
}

// A policy may render cluster-scoped objects only under the subject's own name.
func TestAllowedNamesOfClusterScopedObjects(t *testing.T) {
	var (
		project    = ClusterTarget(SubjectProject, "thesis")
		department = ClusterTarget(SubjectDepartment, "thesis")
		pool       = ClusterTarget(SubjectNodePool, "thesis")
	)
	tests := map[string]struct {
		place   Target
		allowed bool
	}{
		"thesis":              {project, true},
		"thesis.dgx":          {project, true},
		"project.thesis":      {project, true},
		"project.thesis.dgx":  {project, true},
		"department.thesis":   {department, true},
		"nodepool.thesis.a-b": {pool, true},
		"":                    {project, false},
		"other":               {project, false},
		"thesis2":             {project, false},
		"thesis.":             {project, false},
		"thesis.dgx.x":        {project, false},
		"project.thesis.":     {project, false},
		"project.thesis.x.y":  {project, false},
		"project.other":       {project, false},
		"other.thesis":        {project, false},
		"nodepool.thesis":     {department, false},
		"department.thesis.x": {pool, false},
		".thesis":             {project, false},
	}
	for name, tc := range tests {
		if got := tc.place.allowsName(name); got != tc.allowed {
			t.Errorf("%s may have an object called %q: %v, want %v", tc.place, name, got, tc.allowed)
		}
	}
}

// Subjects of different kinds share no object name, except for the name that both have and its
// suffixes.
func TestNamesThatBeginWithASubjectKind(t *testing.T) {
	for name, place := range map[string]Target{
		"nodepool.dgx":       ClusterTarget(SubjectProject, "nodepool"),
		"department.x":       ClusterTarget(SubjectProject, "department"),
		"project.x":          ClusterTarget(SubjectProject, "project"),
		"project.department": ClusterTarget(SubjectDepartment, "department"),
	} {
		if place.allowsName(name) {
			t.Errorf("%s may squat on %s", place, name)
		}
	}
	if place := ClusterTarget(SubjectProject, "nodepool"); !place.allowsName("nodepool") || !place.allowsName("project.nodepool.x") {
		t.Errorf("%s has no names left", place)
	}
}

func TestValidateBySubjectKind(t *testing.T) {
	queue := func(kind string, metadata fields) fields {
		return newFields("kueue.x-k8s.io/v1beta2", kind, metadata, fields{"any": "field"})
	}
	tests := map[string]struct {
		place       Target
		value       fields
		wantMessage string // empty where it is allowed
	}{
		"a project's queue":               {testTarget, queue("ClusterQueue", fields{"name": "thesis"}), ""},
		"a project's local queue":         {testTarget, queue("LocalQueue", fields{"name": "default"}), ""},
		"a department's cohort":           {ClusterTarget(SubjectDepartment, "cs"), queue("Cohort", fields{"name": "cs"}), ""},
		"a pool's flavor":                 {ClusterTarget(SubjectNodePool, "dgx"), queue("ResourceFlavor", fields{"name": "dgx"}), ""},
		"a pool's KAI queue":              {ClusterTarget(SubjectNodePool, "dgx"), newFields("scheduling.run.ai/v2", "Queue", fields{"name": "nodepool.dgx"}, fields{}), ""},
		"a department's quota":            {ClusterTarget(SubjectDepartment, "cs"), newQuotaPart(fields{"pods": "1"}), "v1 ResourceQuota sluice is not a kind that policies may render for a Department; allowed are kueue.x-k8s.io/v1beta2 ResourceFlavor"},
		"a pool's local queue":            {ClusterTarget(SubjectNodePool, "dgx"), queue("LocalQueue", fields{"name": "default"}), "for a NodePool"},
		"another version":                 {testTarget, newFields("kueue.x-k8s.io/v1beta1", "ClusterQueue", fields{"name": "thesis"}, nil), "kueue.x-k8s.io/v1beta1 ClusterQueue thesis"},
		"another's name":                  {testTarget, queue("ClusterQueue", fields{"name": "other"}), "metadata.name: a cluster-scoped object of project thesis has one of the names thesis, thesis.<suffix>, project.thesis, project.thesis.<suffix>"},
		"cluster-scoped with a namespace": {testTarget, queue("ClusterQueue", fields{"name": "thesis", "namespace": "thesis-ns"}), "is cluster-scoped"},
		"a local queue of another's":      {testTarget, queue("LocalQueue", fields{"name": "default", "namespace": "kube-system"}), "kube-system"},
		"a queue with a status":           {testTarget, withField(queue("ClusterQueue", fields{"name": "thesis"}), "status", fields{}), "status may not be set by a policy"},
		"a queue with an owner":           {testTarget, queue("ClusterQueue", fields{"name": "thesis", "ownerReferences": []any{}}), "metadata.ownerReferences"},
		"a queue with labels of no value": {testTarget, queue("ClusterQueue", fields{"name": "thesis", "labels": fields{"a": true}}), "labels"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := Validate(newRendering(renderedBy("p", tc.value)), tc.place)
			if tc.wantMessage == "" {
				if len(wanted.Failures) > 0 || len(wanted.Objects) != 1 {
					t.Fatalf("wanted = %+v", wanted)
				}
				got := wanted.Objects[0]
				if got.GetLabels()[tc.place.Kind.Label()] != tc.place.Name || got.GetLabels()["app.kubernetes.io/managed-by"] != "sluice" || len(got.GetLabels()) != 2 {
					t.Errorf("labels = %v", got.GetLabels())
				}
				if in := got.GetNamespace(); in != "" && in != tc.place.Namespace || (in == "") == (got.GetKind() == "LocalQueue") {
					t.Errorf("%s is in namespace %q", got.GetKind(), in)
				}
				return
			}
			if len(wanted.Objects) != 0 || len(wanted.Failures) != 1 || !strings.Contains(wanted.Failures[0].String(), tc.wantMessage) {
				t.Fatalf("wanted = %+v", wanted)
			}
			if quota := tc.value["kind"] == "ResourceQuota"; wanted.Failures[0].AffectsQuota != quota || wanted.Failures[0].AffectsQueue == quota {
				t.Errorf("of a quota: %v, of a queue: %v", wanted.Failures[0].AffectsQuota, wanted.Failures[0].AffectsQueue)
			}
		})
	}
}

// What holds the limit is applied before what lets in.
func TestQuotasComeFirst(t *testing.T) {
	wanted := Validate(newRendering(
		renderedBy("p", newFields("kueue.x-k8s.io/v1beta2", "LocalQueue", fields{"name": "default"}, fields{})),
		renderedBy("p", newFields("kueue.x-k8s.io/v1beta2", "ClusterQueue", fields{"name": "thesis"}, fields{})),
		renderedBy("p", newLimitRange("a", "1")), renderedBy("p", newQuotaPart(fields{"pods": "1"})),
	), testTarget)
	var got []string
	for _, object := range wanted.Objects {
		got = append(got, object.GetKind()+" "+object.GetName())
	}
	if said := strings.Join(got, ", "); said != "ResourceQuota sluice, LimitRange a, ClusterQueue thesis, LocalQueue default" {
		t.Errorf("in this order: %s", said)
	}
}
