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

// maxRegoLength is the number of characters that the schema of Policy allows for a module.
const maxRegoLength = 262144

// validateBuiltIn returns an error for built-in policies that no Policy object can show.
func validateBuiltIn(builtIn []engine.Source) error {
	var errs []error
	for _, source := range builtIn {
		if wrong := validation.IsDNS1123Subdomain(source.Name); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("the built-in policy %q has a name that no object can have: %s", source.Name, wrong[0]))
		}
		if length := utf8.RuneCountInString(source.Rego); length < 1 || length > maxRegoLength {
			errs = append(errs, fmt.Errorf("the built-in policy %s has %d characters; from 1 to %d fit in an object", source.Name, length,
				maxRegoLength))
		}
	}
	return errors.Join(errs...)
}

// mirrorSpec returns the spec of a mirror: all of the built-in policy but its parameters.
func mirrorSpec(source engine.Source) v1alpha1.PolicySpec {
	spec := v1alpha1.PolicySpec{Type: v1alpha1.PolicyTypePolicy, Enforcement: source.Enforcement, Match: source.Match, Rego: source.Rego}
	if spec.Enforcement == "" {
		spec.Enforcement = v1alpha1.EnforcementDeny
	}
	return spec
}

// mirrorLabels returns the labels of every mirror.
func mirrorLabels() map[string]string {
	return map[string]string{
		v1alpha1.LabelBuiltIn:   "true",
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice,
	}
}

// newMirror returns the object to apply for a built-in policy.
func newMirror(source engine.Source) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Policy{Spec: mirrorSpec(source)})
	if err != nil {
		return nil, fmt.Errorf("encode the mirror of %s: %w", source.Name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": fields["spec"]}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Policy"))
	object.SetName(source.Name)
	object.SetLabels(mirrorLabels())
	return object, nil
}

// isMirror reports whether lifecycle created an object.
func isMirror(object *v1alpha1.Policy) bool {
	for key, value := range mirrorLabels() {
		if object.Labels[key] != value {
			return false
		}
	}
	return true
}

// isUpToDate reports whether an object shows a built-in policy unchanged.
func isUpToDate(object *v1alpha1.Policy, source engine.Source) bool {
	shown := object.Spec
	shown.Parameters = nil
	return isMirror(object) && equality.Semantic.DeepEqual(shown, mirrorSpec(source))
}

// foreignFieldsPatch returns the merge patch that removes what users wrote to a mirror and
// applying would keep: additional elements of the match's lists, which are sets,
// spec.replaces and spec.exemptions. It is nil if there is nothing to remove.
func foreignFieldsPatch(object *v1alpha1.Policy, source engine.Source) []byte {
	desired := mirrorSpec(source)
	if object.Spec.Replaces == "" && len(object.Spec.Exemptions) == 0 && equality.Semantic.DeepEqual(object.Spec.Match, desired.Match) {
		return nil
	}
	match := map[string]any{
		"departments": orNull(desired.Match.Departments), "projects": orNull(desired.Match.Projects),
		"kinds": orNull(desired.Match.Kinds), "operations": orNull(desired.Match.Operations),
		"exclude": nil,
	}
	change, err := json.Marshal(map[string]any{"spec": map[string]any{"replaces": nil, "exemptions": nil, "match": match}})
	if err != nil {
		return nil // lists of strings always encode
	}
	return change
}

// orNull returns a list, or null for an empty one, which removes it in a merge patch.
func orNull[T ~string](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}
