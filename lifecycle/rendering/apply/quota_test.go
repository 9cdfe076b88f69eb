// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

const testQuotaResource corev1.ResourceName = "sluice.dev/gpu-milli.dgx"

func quotaResources(value string) corev1.ResourceList {
	if value == "" {
		return nil
	}
	return corev1.ResourceList{"requests." + testQuotaResource: resource.MustParse(value)}
}

// newQuota returns the quota of testTarget.
func newQuota(hard, counted, used string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Namespace: testTarget.Namespace, Name: v1alpha1.QuotaName, Labels: testTarget.labels()},
		Spec:       corev1.ResourceQuotaSpec{Hard: quotaResources(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: quotaResources(counted), Used: quotaResources(used)},
	}
}

func TestIsCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		quota *corev1.ResourceQuota
		want  bool
	}{
		"none": {nil, true}, "counted": {newQuota("1000", "1k", "0"), true}, "new": {newQuota("1000", "", ""), false},
		"raised": {newQuota("2000", "1k", "500"), false}, "empty": {newQuota("", "", ""), true},
	} {
		if got := IsCounted(tc.quota); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestEnforcedLimit(t *testing.T) {
	type limit struct {
		Hard, Used int64
		Found      bool
	}
	for name, tc := range map[string]struct {
		quota *corev1.ResourceQuota
		want  limit
	}{
		"none":              {nil, limit{}},
		"not counted yet":   {newQuota("5", "", ""), limit{}},
		"counted":           {newQuota("1500", "1500", "500"), limit{1500, 500, true}},
		"as it was counted": {newQuota("2k", "1k", "1k"), limit{1000, 1000, true}},
	} {
		t.Run(name, func(t *testing.T) {
			hard, used, found := EnforcedLimit(tc.quota, testQuotaResource)
			if diff := cmp.Diff(tc.want, limit{hard, used, found}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// newQuotaPart returns what a policy renders of a project's quota.
func newQuotaPart(hard fields) fields {
	return newFields("v1", "ResourceQuota", fields{"name": "sluice"}, fields{"hard": hard})
}

// Guards invariant 3 of the design: a project has one quota, with the limits of all policies. Without all
// of them there is none to apply, so that the former one stays.
func TestValidateMergesQuotas(t *testing.T) {
	limits, objects := newQuotaPart(fields{"requests.a": "1"}), newQuotaPart(fields{"pods": "500", "count/jobs.batch": int64(5)})
	annotated := newQuotaPart(fields{"requests.a": "1000m"})
	annotated["metadata"] = fields{"name": "sluice", "annotations": fields{"why": "so"}}
	policies := func(values ...fields) (r engine.Rendering) {
		for i, value := range values {
			r.Objects = append(r.Objects, renderedBy(string(rune('p'+i)), value))
		}
		return r
	}
	failed := policies(limits, objects)
	failed.Failures = []engine.Failure{{Policy: "slow", Enforcement: v1alpha1.EnforcementDeny, Err: errors.New("too slow")}}
	for name, tc := range map[string]struct {
		rendering engine.Rendering
		hard      fields
		failure   string // in place of the quota
	}{
		"of several policies": {policies(limits, objects), fields{"requests.a": "1", "pods": "500", "count/jobs.batch": int64(5)}, ""},
		"equal values":        {policies(limits, annotated), fields{"requests.a": "1"}, ""},
		"two values": {
			policies(limits, objects, newQuotaPart(fields{"pods": "20", "count/jobs.batch": "5"})), nil,
			"policy r: policy q renders ResourceQuota sluice, too, with another spec.hard.pods: 500, and this one 20; set it in one of the two",
		},
		"a second quota": {
			policies(limits, newFields("v1", "ResourceQuota", fields{"name": "team"}, fields{"hard": fields{"pods": "5"}})), nil,
			"policy q: objects: ResourceQuota team: metadata.name: a project has one ResourceQuota, sluice,",
		},
		"a scope": {
			policies(limits, newFields("v1", "ResourceQuota", fields{"name": "sluice"}, fields{"scopes": []any{"Terminating"}})), nil,
			"spec.scopes may not be set by a policy; allowed are spec.hard",
		},
		"a policy that failed": {failed, nil, "policy slow: too slow"},
	} {
		t.Run(name, func(t *testing.T) {
			desired := Validate(tc.rendering, testTarget)
			if tc.failure != "" {
				if len(desired.Objects) != 0 || len(desired.Failures) != 1 || !desired.Failures[0].AffectsQuota ||
					!strings.Contains(desired.Failures[0].String(), tc.failure) {
					t.Errorf("desired = %+v", desired)
				}
				return
			}
			if len(desired.Failures) != 0 || len(desired.Objects) != 1 {
				t.Fatalf("desired = %+v", desired)
			}
			if diff := cmp.Diff(tc.hard, desired.Objects[0].Object["spec"].(fields)["hard"]); diff != "" {
				t.Errorf("limits (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(testTarget.labels(), desired.Objects[0].GetLabels()); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
		})
	}
}

// newQuotaCluster returns a cluster with these objects.
func newQuotaCluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithTypeConverters(clientgoac.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter()).Build()
}

// applyHard applies a quota with these limits to testTarget, and returns its limits.
func applyHard(t *testing.T, cluster client.Client, hard fields, failures ...Failure) (limits map[string]string, result Result) {
	t.Helper()
	desired := Desired{Failures: failures}
	if hard != nil {
		desired.Objects = Validate(newRendering(renderedBy("p", newQuotaPart(hard))), testTarget).Objects
	}
	result, err := (&Applier{Client: cluster, Live: cluster, Queues: noQueueKinds{}}).Apply(t.Context(), testTarget, desired)
	if err != nil {
		t.Fatal(err)
	}
	quota, err := GetQuota(t.Context(), cluster, testTarget)
	if err != nil || quota == nil {
		t.Fatalf("the quota is %v, %v", quota, err)
	}
	limits = map[string]string{}
	for name, amount := range quota.Spec.Hard {
		limits[string(name)] = amount.String()
	}
	return limits, result
}

// Guards invariant 3 of the design: a webhook that does not know yet that the project lost a node pool
// still admits pods there, so that the quota goes on counting them.
func TestRemovedPoolStaysInQuota(t *testing.T) {
	cluster := newQuotaCluster(t)
	applyHard(t, cluster, fields{
		"requests.sluice.dev/gpu-milli.a": "1000", "requests.sluice.dev/guaranteed-milli.a": "500", "requests.cpu": "4", "pods": "5",
		"requests.sluice.dev/gpu-milli": "1000", // of pools that share it
	})
	for range 2 { // the second time the quota has them already
		got, _ := applyHard(t, cluster, fields{"requests.sluice.dev/gpu-milli.b": "2000", "pods": "6"})
		want := map[string]string{
			"requests.sluice.dev/gpu-milli.a": "0", "requests.sluice.dev/guaranteed-milli.a": "0", "requests.sluice.dev/gpu-milli.b": "2k", "pods": "6",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	got, _ := applyHard(t, cluster, fields{"requests.sluice.dev/gpu-milli.a": "3000"})
	if got["requests.sluice.dev/gpu-milli.a"] != "3k" || got["requests.sluice.dev/gpu-milli.b"] != "0" || got["pods"] != "" {
		t.Errorf("with its pool again: %v", got)
	}
}

// Guards invariant 3 of the design: while a part of the quota cannot be had, the former quota holds, and is
// the one in force.
func TestFormerQuotaHoldsDuringFailure(t *testing.T) {
	cluster := newQuotaCluster(t)
	applyHard(t, cluster, fields{"pods": "5"})
	limits, result := applyHard(t, cluster, nil, Failure{AffectsQuota: true, Err: errors.New("no")})
	if limits["pods"] != "5" || result.Quota == nil || result.Quota.Name != v1alpha1.QuotaName {
		t.Errorf("limits %v, in force %v", limits, result.Quota)
	}
}

// The quotas of a namespace are the project's, which lifecycle rendered, and all others.
func TestListQuotas(t *testing.T) {
	named := func(namespace, name string, labels map[string]string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		found   bool
		others  []string
	}{
		"none":                     {nil, false, nil},
		"the project's":            {[]client.Object{newQuota("1", "1", "0")}, true, nil},
		"a user's":                 {[]client.Object{newQuota("1", "1", "0"), named("thesis-ns", "b", nil), named("thesis-ns", "a", testTarget.labels())}, true, []string{"a", "b"}},
		"a user's of the name":     {[]client.Object{named("thesis-ns", "sluice", nil)}, false, []string{"sluice"}},
		"one of another namespace": {[]client.Object{named("other", "b", nil)}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			quota, others, err := ListQuotas(t.Context(), newQuotaCluster(t, tc.objects...), testTarget)
			if err != nil || (quota != nil) != tc.found || !slices.Equal(others, tc.others) {
				t.Errorf("quota %v, others %v, %v", quota, others, err)
			}
		})
	}
}

// What policies render is no map that the merge may change: other projects have it, too.
func TestQuotaMergeKeepsParts(t *testing.T) {
	part := &unstructured.Unstructured{Object: newQuotaPart(fields{"pods": "5"})}
	var m quotaMerge
	for policy, hard := range map[string]fields{"p": nil, "q": {"services": "1"}} {
		other := part
		if hard != nil {
			other = &unstructured.Unstructured{Object: newQuotaPart(hard)}
		}
		if err := m.add(other, policy); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(fields{"pods": "5"}, part.Object["spec"].(fields)["hard"]); diff != "" {
		t.Errorf("the part (-want +got)\n%s", diff)
	}
}
