// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// maxRego is how many characters the Policy kind's schema allows a module.
const maxRego = 262144

// mirrorable says which built-in policies no Policy object could show.
func mirrorable(builtIn []engine.Source) error {
	var faults []error
	for _, source := range builtIn {
		if wrong := validation.IsDNS1123Subdomain(source.Name); len(wrong) > 0 {
			faults = append(faults, fmt.Errorf("the built-in policy %q has no name for an object: %s", source.Name, wrong[0]))
		}
		if length := utf8.RuneCountInString(source.Rego); length < 1 || length > maxRego {
			faults = append(faults, fmt.Errorf("the built-in policy %s has %d characters; from 1 to %d fit in an object", source.Name, length, maxRego))
		}
	}
	return errors.Join(faults...)
}

// spec is what a mirror shows of a built-in policy: all but its parameters.
func spec(source engine.Source) v1alpha1.PolicySpec {
	shown := v1alpha1.PolicySpec{Enforcement: source.Enforcement, Match: source.Match, Rego: source.Rego}
	if shown.Enforcement == "" {
		shown.Enforcement = v1alpha1.EnforcementDeny
	}
	return shown
}

// labels are those of every mirror.
func labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelBuiltIn:   "true",
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice,
	}
}

// mirror is the object to apply for a built-in policy.
func mirror(source engine.Source) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Policy{Spec: spec(source)})
	if err != nil {
		return nil, fmt.Errorf("the mirror of %s: %w", source.Name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": fields["spec"]}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Policy"))
	object.SetName(source.Name)
	object.SetLabels(labels())
	return object, nil
}

// isMirror tells whether lifecycle made an object.
func isMirror(object *v1alpha1.Policy) bool {
	for key, value := range labels() {
		if object.Labels[key] != value {
			return false
		}
	}
	return true
}

// faithful tells whether an object shows a built-in policy as it is.
func faithful(object *v1alpha1.Policy, source engine.Source) bool {
	shown := object.Spec
	shown.Parameters = nil
	return isMirror(object) && equality.Semantic.DeepEqual(shown, spec(source))
}

// intrusion is the change that takes out of a mirror what others wrote where
// applying cannot: lists of the match are sets, in which theirs would stay beside
// ours, and spec.replaces is not ours at all. It is nil where there is nothing.
func intrusion(object *v1alpha1.Policy, source engine.Source) []byte {
	want := spec(source)
	if object.Spec.Replaces == "" && equality.Semantic.DeepEqual(object.Spec.Match, want.Match) {
		return nil
	}
	match := map[string]any{
		"departments": orNull(want.Match.Departments), "projects": orNull(want.Match.Projects),
		"kinds": orNull(want.Match.Kinds), "operations": orNull(want.Match.Operations),
	}
	change, err := json.Marshal(map[string]any{"spec": map[string]any{"replaces": nil, "match": match}})
	if err != nil {
		return nil // lists of strings always encode
	}
	return change
}

// orNull is a list, or what removes it in a merge patch.
func orNull[T ~string](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}
