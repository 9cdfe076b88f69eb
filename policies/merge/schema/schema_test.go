// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// knownDifferences are the differences from server-side apply, each with its reason.
var knownDifferences = map[string]string{
	// A policy adds a label. Replacing the map would remove the author's labels, and so
	// allow more nodes.
	"PodSpec.nodeSelector": "granular map, not atomic",
	// A mix of an old handler and a new one is invalid.
	"LifecycleHandler":   "atomic struct, not granular",
	"SeccompProfile":     "atomic struct, not granular",
	"AppArmorProfile":    "atomic struct, not granular",
	"PodSchedulingGroup": "atomic struct, not granular",
}

// serverSideApplySchema returns the schema of server-side apply, from client-go.
func serverSideApplySchema(t *testing.T, of runtime.Object) (*schema.Schema, schema.TypeRef) {
	t.Helper()
	typed, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(of)
	if err != nil {
		t.Fatal(err)
	}
	return typed.Schema(), typed.TypeRef()
}

// schemaComparison walks both schemas in parallel.
type schemaComparison struct {
	t       *testing.T
	schema  *schema.Schema
	seen    map[*Type]bool
	differs map[string]string
}

func TestSchemaMatchesServerSideApply(t *testing.T) {
	s, root := serverSideApplySchema(t, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	c := &schemaComparison{t: t, schema: s, seen: map[*Type]bool{}, differs: map[string]string{}}
	c.compare("Pod", Pod(), root)
	c.schema, root = serverSideApplySchema(t, &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}})
	c.compare("Job", Job(), root)
	if diff := cmp.Diff(knownDifferences, c.differs); diff != "" {
		t.Errorf("differences from server-side apply (-listed +found):\n%s", diff)
	}
}

func (c *schemaComparison) compare(id string, ours *Type, ref schema.TypeRef) {
	if c.seen[ours] {
		return
	}
	c.seen[ours] = true
	theirs, ok := c.schema.Resolve(ref)
	if !ok {
		c.t.Fatalf("%s: server-side apply does not know it", id)
	}
	switch ours.Kind {
	case KindStruct:
		c.structs(id, ours, theirs.Map)
	case KindMap:
		c.relation(id, "map", theirs.Map.ElementRelationship == schema.Atomic, ours.Atomic)
		c.compare(id+"{}", ours.Elem, theirs.Map.ElementType)
	case KindList:
		c.lists(id, ours, theirs.List)
	case KindAny:
		if ours.Name != "FieldsV1" {
			c.t.Errorf("%s: the schema does not know a %s", id, ours.Name)
		}
	default:
		if theirs.Scalar == nil {
			c.t.Errorf("%s: %s is not a scalar in server-side apply", id, ours.Kind)
		}
	}
}

func (c *schemaComparison) structs(id string, ours *Type, theirs *schema.Map) {
	if theirs == nil {
		c.t.Fatalf("%s is not a map in server-side apply", id)
	}
	c.relation(ours.Name, "struct", theirs.ElementRelationship == schema.Atomic, ours.Atomic)
	var names []string
	for _, field := range theirs.Fields {
		if field.Name == "status" && (ours == Pod() || ours == Job()) { // not merged
			continue
		}
		names = append(names, field.Name)
		if own := ours.Field(field.Name); own != nil {
			c.compare(own.ID(), own.Type, field.Type)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(ours.fields))); diff != "" {
		c.t.Errorf("%s has other fields (-server-side apply +ours):\n%s", id, diff)
	}
}

func (c *schemaComparison) lists(id string, ours *Type, theirs *schema.List) {
	if theirs == nil {
		c.t.Fatalf("%s is not a list in server-side apply", id)
	}
	c.relation(id, "list", theirs.ElementRelationship == schema.Atomic, ours.Atomic)
	if diff := cmp.Diff(slices.Sorted(slices.Values(theirs.Keys)), slices.Sorted(slices.Values(ours.Keys))); diff != "" {
		c.t.Errorf("%s has other keys (-server-side apply +ours):\n%s", id, diff)
	}
	c.compare(id+"[]", ours.Elem, theirs.ElementType)
}

func (c *schemaComparison) relation(id, what string, theirs, ours bool) {
	word := map[bool]string{true: "atomic", false: "granular"}
	if theirs != ours {
		c.differs[id] = fmt.Sprintf("%s %s, not %s", word[ours], what, word[theirs])
	}
}

// Every row of the tables is a field or type of a pod or a Job.
func TestSchemaTablesHaveNoStaleRows(t *testing.T) {
	fields, types := map[string]bool{}, map[string]bool{}
	var walk func(*Type)
	seen := map[*Type]bool{}
	walk = func(t *Type) {
		if t == nil || seen[t] {
			return
		}
		seen[t], types[t.Name] = true, true
		walk(t.Elem)
		for _, field := range t.fields {
			fields[field.ID()], types[field.Owner] = true, true
			walk(field.Type)
		}
	}
	walk(Pod())
	walk(Job())
	for _, table := range []map[string]bool{setFields, unionFields} {
		for id := range table {
			if !fields[id] {
				t.Errorf("neither a pod nor a Job has a field %s", id)
			}
		}
	}
	for id := range listKeys {
		if !fields[id] {
			t.Errorf("neither a pod nor a Job has a field %s", id)
		}
	}
	for _, table := range []map[string]bool{atomicTypes, unionTypes} {
		for name := range table {
			if !types[name] {
				t.Errorf("neither a pod nor a Job has a %s", name)
			}
		}
	}
}
