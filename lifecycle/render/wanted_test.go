// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

var thesis = Place{Kind: ForProject, Name: "thesis", Namespace: "thesis-ns"}

type fields = map[string]any

func object(apiVersion, kind string, metadata, spec fields) fields {
	return fields{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}
}

func quotaNamed(name string, hard string) fields {
	return object("v1", "ResourceQuota", fields{"name": name}, fields{"hard": fields{"requests.sluice.dev/gpu-milli.dgx": hard}})
}

func with(o fields, key string, value any) fields {
	o[key] = value
	return o
}

func rendering(objects ...engine.Object) engine.Rendering { return engine.Rendering{Objects: objects} }

func by(policy string, value fields) engine.Object {
	return engine.Object{Policy: policy, Value: value}
}

func TestCheckMakesObjectsWhole(t *testing.T) {
	given := quotaNamed("b", "500")
	given["metadata"] = fields{
		"name": "b", "namespace": "thesis-ns", "annotations": fields{"why": "so"},
		"labels": fields{"team": "x", v1alpha1.LabelProject: "another", v1alpha1.LabelNodePool: "dgx", v1alpha1.LabelManagedBy: "helm"},
	}
	wanted := Check(rendering(by("p", given), by("p", quotaNamed("a", "1000")), by("q", quotaNamed("a", "1000"))), thesis)
	if len(wanted.Faults) > 0 || len(wanted.Objects) != 2 {
		t.Fatalf("wanted = %+v", wanted)
	}
	want := fields{
		"apiVersion": "v1", "kind": "ResourceQuota",
		"metadata": fields{
			"name": "b", "namespace": "thesis-ns", "annotations": fields{"why": "so"},
			"labels": fields{"team": "x", v1alpha1.LabelProject: "thesis", v1alpha1.LabelManagedBy: "sluice"},
		},
		"spec": fields{"hard": fields{"requests.sluice.dev/gpu-milli.dgx": "500"}},
	}
	if diff := cmp.Diff(want, wanted.Objects[1].Object); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if first := wanted.Objects[0]; first.GetName() != "a" || first.GetNamespace() != "thesis-ns" {
		t.Errorf("the first is %v", first.Object)
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := map[string]struct {
		value fields
		quota bool
		says  []string
	}{
		"a role binding": {
			object("rbac.authorization.k8s.io/v1", "RoleBinding", fields{"name": "admin"}, nil), false,
			[]string{"policy p", "rbac.authorization.k8s.io/v1 RoleBinding admin", "v1 ResourceQuota", "v1 LimitRange", "networking.k8s.io/v1 NetworkPolicy"},
		},
		"a secret":                {object("v1", "Secret", fields{"name": "s"}, nil), false, []string{"v1 Secret s"}},
		"a quota of another API":  {object("quota.example.org/v1", "ResourceQuota", fields{"name": "s"}, nil), true, []string{"quota.example.org/v1 ResourceQuota s"}},
		"of another namespace":    {object("v1", "ResourceQuota", fields{"name": "s", "namespace": "kube-system"}, fields{}), true, []string{"kube-system", "thesis-ns", "leave metadata.namespace out"}},
		"with an owner":           {object("v1", "LimitRange", fields{"name": "s", "ownerReferences": []any{}, "finalizers": []any{}}, fields{}), false, []string{"metadata.ownerReferences", "metadata.finalizers", "metadata.name, metadata.namespace"}},
		"with a status":           {with(quotaNamed("s", "1"), "status", fields{"hard": fields{}}), true, []string{"ResourceQuota s", "status is not"}},
		"with an unknown field":   {object("v1", "ResourceQuota", fields{"name": "s"}, fields{"hrad": fields{}}), true, []string{"hrad"}},
		"with what is no number":  {quotaNamed("s", "many"), true, []string{"ResourceQuota s"}},
		"with labels of no value": {object("v1", "LimitRange", fields{"name": "s", "labels": fields{"a": true}}, fields{}), false, []string{"LimitRange s"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := Check(rendering(by("p", tc.value)), thesis)
			if len(wanted.Objects) != 0 || len(wanted.Faults) != 1 || wanted.Faults[0].Quota != tc.quota {
				t.Fatalf("wanted = %+v", wanted)
			}
			for _, says := range append(tc.says, "policy p: ") {
				if got := wanted.Faults[0].String(); !strings.Contains(got, strings.TrimSuffix(says, ": ")) {
					t.Errorf("fault %q does not say %q", got, says)
				}
			}
		})
	}
}

func TestCheckTakesNeitherOfTwo(t *testing.T) {
	wanted := Check(rendering(by("p", quotaNamed("a", "1")), by("q", quotaNamed("a", "2")), by("q", quotaNamed("b", "2"))), thesis)
	if len(wanted.Objects) != 1 || wanted.Objects[0].GetName() != "b" {
		t.Errorf("objects = %+v", wanted.Objects)
	}
	if len(wanted.Faults) != 1 || !wanted.Faults[0].Quota || !strings.Contains(wanted.Faults[0].String(), "policy q: ResourceQuota a is rendered by policy p too") {
		t.Errorf("faults = %v", wanted.Faults)
	}
}

func TestCheckMindsPoliciesThatFailed(t *testing.T) {
	r := rendering(by("p", quotaNamed("a", "1")))
	r.Failures = []engine.Failure{
		{Policy: "slow", Enforcement: v1alpha1.EnforcementDeny, Err: errors.New("too slow")},
		{Policy: "trial", Enforcement: v1alpha1.EnforcementDryRun, Err: errors.New("wrong")},
	}
	wanted := Check(r, thesis)
	if len(wanted.Objects) != 1 || len(wanted.Faults) != 1 || !wanted.Faults[0].Quota || wanted.Faults[0].String() != "policy slow: too slow" {
		t.Errorf("wanted = %+v", wanted)
	}
}
