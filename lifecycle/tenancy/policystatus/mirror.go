// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

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

// maxRegoLength is how many characters the Policy kind's schema allows a module.
const maxRegoLength = 262144

// validateBuiltIn says which built-in policies no Policy object could show.
func validateBuiltIn(builtIn []engine.Source) error {
	var faults []error
	for _, source := range builtIn {
		if wrong := validation.IsDNS1123Subdomain(source.Name); len(wrong) > 0 {
			faults = append(faults, fmt.Errorf("the built-in policy %q has no name for an object: %s", source.Name, wrong[0]))
		}
		if length := utf8.RuneCountInString(source.Rego); length < 1 || length > maxRegoLength {
			faults = append(faults, fmt.Errorf("the built-in policy %s has %d characters; from 1 to %d fit in an object", source.Name, length, maxRegoLength))
		}
	}
	return errors.Join(faults...)
}

// mirrorSpec is what a mirror shows of a built-in policy: all but its parameters.
func mirrorSpec(source engine.Source) v1alpha1.PolicySpec {
	shown := v1alpha1.PolicySpec{Enforcement: source.Enforcement, Match: source.Match, Rego: source.Rego}
	if shown.Enforcement == "" {
		shown.Enforcement = v1alpha1.EnforcementDeny
	}
	return shown
}

// mirrorLabels are those of every mirror.
func mirrorLabels() map[string]string {
	return map[string]string{
		v1alpha1.LabelBuiltIn:   "true",
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice,
	}
}

// newMirror is the object to apply for a built-in policy.
func newMirror(source engine.Source) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Policy{Spec: mirrorSpec(source)})
	if err != nil {
		return nil, fmt.Errorf("the mirror of %s: %w", source.Name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": fields["spec"]}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Policy"))
	object.SetName(source.Name)
	object.SetLabels(mirrorLabels())
	return object, nil
}

// isMirror tells whether lifecycle made an object.
func isMirror(object *v1alpha1.Policy) bool {
	for key, value := range mirrorLabels() {
		if object.Labels[key] != value {
			return false
		}
	}
	return true
}

// isUpToDate tells whether an object shows a built-in policy as it is.
func isUpToDate(object *v1alpha1.Policy, source engine.Source) bool {
	shown := object.Spec
	shown.Parameters = nil
	return isMirror(object) && equality.Semantic.DeepEqual(shown, mirrorSpec(source))
}

// foreignFieldsPatch is the change that takes out of a mirror what others wrote where
// applying cannot: lists of the match are sets, in which theirs would stay beside
// ours, and spec.replaces is not ours at all. It is nil where there is nothing.
func foreignFieldsPatch(object *v1alpha1.Policy, source engine.Source) []byte {
	want := mirrorSpec(source)
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
