// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// own are the fields of a department's spec that its own administrators write:
// its people, and how they are told. What a department is given, and what its
// projects must keep, is for those who administer all; so is every field that is
// not here.
var own = []string{"contacts", "displayName", "members", "notices"}

// NotOwn tells which fields of the change are not for the department's own
// administrators.
func NotOwn(before, after *v1alpha1.Department) (field.ErrorList, error) {
	changed, err := changedFields(before, after)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for _, path := range changed {
		if name, isSpec := strings.CutPrefix(path, "spec."); !isSpec || !slices.Contains(own, name) {
			errs = append(errs, field.Forbidden(field.NewPath(path), fmt.Sprintf(
				"only system administrators change it; the department's own change spec.%s", strings.Join(own, ", spec."))))
		}
	}
	return errs, nil
}

// changedFields are the paths of the fields that the change touches, one level
// below the spec, and the metadata by which policies and finalizers go.
func changedFields(before, after *v1alpha1.Department) ([]string, error) {
	was, err := fieldsOf(&before.Spec)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(&after.Spec)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, metadata := range []struct {
		path    string
		was, is any
	}{
		{"metadata.labels", before.Labels, after.Labels},
		{"metadata.annotations", said(before), said(after)},
		{"metadata.ownerReferences", before.OwnerReferences, after.OwnerReferences},
		{"metadata.finalizers", before.Finalizers, after.Finalizers},
	} {
		if !equality.Semantic.DeepEqual(metadata.was, metadata.is) {
			changed = append(changed, metadata.path)
		}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(was[name]) != string(is[name]) {
			changed = append(changed, "spec."+name)
		}
	}
	return changed, nil
}

func fieldsOf(spec *v1alpha1.DepartmentSpec) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("comparing departments: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("comparing departments: %w", err)
	}
	return fields, nil
}

// said are the annotations, without kubectl's copy of what was applied.
func said(department *v1alpha1.Department) map[string]string {
	annotations := maps.Clone(department.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return annotations
}
