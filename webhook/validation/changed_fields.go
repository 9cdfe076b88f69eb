// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

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

// Change is a changed field.
type Change struct {
	// Path is spec or metadata and the field's name.
	Path string
	// Value is the field's new value; nil if the field was removed or is not a scalar.
	Value any
}

// ChangedFields returns the changed fields: first those of the metadata that policies and finalizers depend on, then
// the fields one level below spec, sorted.
func ChangedFields(before, after client.Object) ([]Change, error) {
	oldSpec, err := specFields(before)
	if err != nil {
		return nil, err
	}
	newSpec, err := specFields(after)
	if err != nil {
		return nil, err
	}
	var changed []Change
	for _, metadata := range []struct {
		path     string
		old, new any
	}{
		{"metadata.labels", before.GetLabels(), after.GetLabels()},
		{"metadata.annotations", userAnnotations(before), userAnnotations(after)},
		{"metadata.ownerReferences", before.GetOwnerReferences(), after.GetOwnerReferences()},
		{"metadata.finalizers", before.GetFinalizers(), after.GetFinalizers()},
	} {
		if !equality.Semantic.DeepEqual(metadata.old, metadata.new) {
			changed = append(changed, Change{Path: metadata.path})
		}
	}
	all := maps.Clone(oldSpec)
	maps.Copy(all, newSpec)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(oldSpec[name]) != string(newSpec[name]) {
			changed = append(changed, Change{Path: "spec." + name, Value: scalarValue(newSpec[name])})
		}
	}
	return changed, nil
}

// Deny returns an error for the change, with a reason.
func (c Change) Deny(reason string) *field.Error {
	path := field.NewPath(c.Path)
	if c.Value == nil {
		return field.Forbidden(path, reason)
	}
	return field.Invalid(path, c.Value, reason)
}

func specFields(object client.Object) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("compare %T %s: %w", object, object.GetName(), err)
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("compare %T %s: %w", object, object.GetName(), err)
	}
	if fields.Spec == nil {
		fields.Spec = map[string]json.RawMessage{}
	}
	return fields.Spec, nil
}

// userAnnotations returns the annotations without kubectl's copy of the last applied object.
func userAnnotations(object client.Object) map[string]string {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return annotations
}

// scalarValue returns a scalar value, and nil for any other.
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
