// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

func claim(namespace, name, class string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "labels": map[string]any{"a": "b"}, "annotations": map[string]any{"secret": "x"},
			"managedFields": []any{map[string]any{"manager": "kubectl"}}, "resourceVersion": "1",
		},
		"spec":   map[string]any{"storageClassName": class, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
		"status": map[string]any{"phase": "Bound"},
	}}
}

var claims = v1alpha1.PolicyDataKind{APIVersion: "v1", Kind: "PersistentVolumeClaim"}

func TestTrim(t *testing.T) {
	metadata := map[string]any{"namespace": "n", "name": "a", "labels": map[string]any{"a": "b"}}
	whole := claim("n", "a", "fast").Object["spec"]
	tests := map[string]struct {
		fields []string
		want   map[string]any
	}{
		"the spec by default":      {nil, map[string]any{"spec": whole}},
		"one field":                {[]string{"spec.storageClassName"}, map[string]any{"spec": map[string]any{"storageClassName": "fast"}}},
		"a field and one below it": {[]string{"spec.storageClassName", "spec"}, map[string]any{"spec": whole}},
		"two fields of one object": {
			[]string{"spec.storageClassName", "spec.resources.requests", "status.phase"},
			map[string]any{"spec": whole, "status": map[string]any{"phase": "Bound"}},
		},
		"none that exists":    {[]string{"data", "spec.storageClassName.x", "apiVersion"}, map[string]any{}},
		"metadata stays ours": {[]string{"metadata"}, map[string]any{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind := claims
			kind.Fields = tc.fields
			want := map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
			for field, value := range tc.want {
				want[field] = value
			}
			object := claim("n", "a", "fast")
			if diff := cmp.Diff(want, Trim(object, &kind)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(claim("n", "a", "fast"), object); diff != "" {
				t.Errorf("the object changed: %s", diff)
			}
		})
	}
}

func TestCollectionLimits(t *testing.T) {
	c := newCollection(claims)
	for i := range MaxObjects {
		if _, err := c.put(claim("n", strconv.Itoa(i), "fast")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.put(claim("n", "0", "slow")); err != nil {
		t.Errorf("a change of an object at the limit: %v", err)
	}
	if _, err := c.put(claim("n", "one more", "fast")); err == nil {
		t.Error("no error for one object too many")
	}
	c.remove("n", "one more")

	c = newCollection(claims)
	if _, err := c.put(claim("n", "a", strings.Repeat("x", MaxObjectBytes))); err == nil {
		t.Error("no error for too many bytes")
	}
}

// Kinds that are too large together are decided alike in each replica, in whatever order they were loaded.
func TestKindsAreTooLargeTogether(t *testing.T) {
	sized := func(name string, bytes int) sizedKind {
		return sizedKind{engine.ObjectKind{Kind: name, Groups: map[string]*engine.ObjectGroup{"n": nil}}, 1, bytes}
	}
	want := []string{"A", "B too large", "C"}
	for _, order := range [][]sizedKind{
		{sized("A", 3<<20), sized("B", 2<<20), sized("C", 1<<20)},
		{sized("C", 1<<20), sized("B", 2<<20), sized("A", 3<<20)},
	} {
		var got []string
		for _, kind := range limitKinds(order) {
			if kind.Unavailable != "" {
				kind.Kind += " too large"
			}
			got = append(got, kind.Kind)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Namespaces without a change keep their group, so that versions of the data share it.
func TestCollectionSharesUnchangedGroups(t *testing.T) {
	c := newCollection(claims)
	put := func(to *collection, namespace, name, class string) bool {
		changed, err := to.put(claim(namespace, name, class))
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	put(c, "a", "x", "fast")
	put(c, "b", "x", "fast")
	first, count, _ := c.snapshot()
	if put(c, "a", "x", "fast") {
		t.Error("an equal object is a change")
	}
	put(c, "b", "x", "slow")
	second, _, _ := c.snapshot()
	if count != 2 || first.Groups["a"] != second.Groups["a"] || first.Groups["b"] == second.Groups["b"] {
		t.Error("the changed group must be replaced, the other one kept")
	}
	fresh := newCollection(claims)
	put(fresh, "a", "x", "fast")
	put(fresh, "c", "x", "fast")
	c.replaceWith(fresh)
	third, count, _ := c.snapshot()
	if count != 2 || third.Groups["a"] != second.Groups["a"] || third.Groups["b"] != nil || third.Groups["c"] == nil {
		t.Errorf("after a new list: %v, want the same group of a, and one of c", third.Groups)
	}
	if !c.remove("c", "x") || c.remove("c", "x") {
		t.Error("an object is removed once")
	}
	if fourth, count, _ := c.snapshot(); count != 1 || len(fourth.Groups) != 1 {
		t.Errorf("%d objects in %v, want one", count, fourth.Groups)
	}
}

func TestCollect(t *testing.T) {
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}}}
	kinds := Collect([]v1alpha1.PolicyDataKind{{APIVersion: "v1", Kind: "Secret"}, claims, {APIVersion: "v2", Kind: "PersistentVolumeClaim"}},
		[]unstructured.Unstructured{*secret, *claim("n", "a", "fast")})
	if len(kinds) != 1 || kinds[0].Kind != "PersistentVolumeClaim" || kinds[0].Scope != engine.ScopeNamespace || kinds[0].Groups["n"] == nil {
		t.Errorf("kinds %v, want claims only", kinds)
	}
}
