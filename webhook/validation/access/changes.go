// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Change is a field that somebody changes.
type Change struct {
	// Path is spec. and the field's name, or metadata. and what of it is touched.
	Path string
	// Value is what the field becomes; nil where it is taken away, or is not one
	// word, number or truth.
	Value any
}

// ChangedFields are the fields that a change touches, one level below the spec, and of the
// metadata that by which policies and finalizers go: that first, then the spec, sorted.
func ChangedFields(before, after client.Object) ([]Change, error) {
	was, err := specFields(before)
	if err != nil {
		return nil, err
	}
	is, err := specFields(after)
	if err != nil {
		return nil, err
	}
	var changed []Change
	for _, metadata := range []struct {
		path    string
		was, is any
	}{
		{"metadata.labels", before.GetLabels(), after.GetLabels()},
		{"metadata.annotations", userAnnotations(before), userAnnotations(after)},
		{"metadata.ownerReferences", before.GetOwnerReferences(), after.GetOwnerReferences()},
		{"metadata.finalizers", before.GetFinalizers(), after.GetFinalizers()},
	} {
		if !equality.Semantic.DeepEqual(metadata.was, metadata.is) {
			changed = append(changed, Change{Path: metadata.path})
		}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(was[name]) != string(is[name]) {
			changed = append(changed, Change{Path: "spec." + name, Value: scalarValue(is[name])})
		}
	}
	return changed, nil
}

// Deny is the change as an error that says why.
func (c Change) Deny(why string) *field.Error {
	path := field.NewPath(c.Path)
	if c.Value == nil {
		return field.Forbidden(path, why)
	}
	return field.Invalid(path, c.Value, why)
}

func specFields(object client.Object) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("comparing %T %s: %w", object, object.GetName(), err)
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("comparing %T %s: %w", object, object.GetName(), err)
	}
	if fields.Spec == nil {
		fields.Spec = map[string]json.RawMessage{}
	}
	return fields.Spec, nil
}

// userAnnotations are the annotations, without kubectl's copy of what was applied.
func userAnnotations(object client.Object) map[string]string {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return annotations
}

// scalarValue is the value where it is one; nil otherwise.
func scalarValue(raw json.RawMessage) any {
	var value any
	if len(raw) == 0 || json.Unmarshal(raw, &value) != nil {
		return nil
	}
	switch value.(type) {
	case string, float64, bool:
		return value
	}
	return nil
}
