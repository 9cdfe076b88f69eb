// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Desired is what policies render for a subject.
type Desired struct {
	// Objects are complete and in the order in which they are applied.
	Objects []*unstructured.Unstructured
	// Failures are the objects that policies may not have.
	Failures []Failure
}

// Validate returns the rendered objects that policies may have. Of two different
// objects with one name it returns neither. It merges all ResourceQuotas into one, and
// returns none if a part of it is missing: without it, a limit would no longer hold.
func Validate(rendering engine.Rendering, target Target) Desired {
	var desired Desired
	for _, failure := range rendering.Failures {
		if failure.Enforcement != v1alpha1.EnforcementDryRun {
			desired.Failures = append(desired.Failures, Failure{Policy: failure.Policy, AffectsQuota: true, AffectsQueue: true, Err: failure.Err})
		}
	}
	var quota quotaMerge
	policies, byKey, contested := map[objectKey]string{}, map[objectKey]*unstructured.Unstructured{}, map[objectKey]bool{}
	for _, object := range rendering.Objects {
		failure := Failure{
			Policy:       object.Policy,
			AffectsQuota: object.Value["kind"] == quotaKind.Kind,
			AffectsQueue: isQueueKindName(object.Value["kind"]),
		}
		complete, err := validateObject(object.Value, target)
		isQuota := err == nil && complete.GroupVersionKind() == quotaKind
		if isQuota {
			err = quota.add(complete, object.Policy)
		}
		if err != nil {
			failure.Err = err
			desired.Failures = append(desired.Failures, failure)
		}
		if err != nil || isQuota {
			continue
		}
		key := keyOf(complete)
		switch first, twice := byKey[key]; {
		case !twice:
			byKey[key], policies[key] = complete, object.Policy
		case !reflect.DeepEqual(first.Object, complete.Object):
			contested[key] = true
			failure.Err = fmt.Errorf("policy %s renders %s, too, and differently; give it another name in one of the two", policies[key], key)
			desired.Failures = append(desired.Failures, failure)
		}
	}
	if quota.merged != nil && !slices.ContainsFunc(desired.Failures, func(f Failure) bool { return f.AffectsQuota }) {
		desired.Objects = append(desired.Objects, quota.merged)
	}
	for _, key := range slices.SortedFunc(maps.Keys(byKey), target.set().compare) {
		if !contested[key] {
			desired.Objects = append(desired.Objects, byKey[key])
		}
	}
	slices.SortStableFunc(desired.Failures, func(a, b Failure) int { return cmp.Compare(a.Policy, b.Policy) })
	return desired
}

// validateObject returns the object with the target's namespace and labels, or why a
// policy may not render it.
func validateObject(value map[string]any, target Target) (*unstructured.Unstructured, error) {
	given := &unstructured.Unstructured{Object: value}
	k, _, ok := lookupKind(given.GetAPIVersion(), given.GetKind())
	if !ok || !slices.Contains(k.subjects, target.Kind) {
		return nil, fmt.Errorf("objects: %s %s %s is not a kind that policies may render for a %s; allowed are %s",
			given.GetAPIVersion(), given.GetKind(), given.GetName(), target.Kind, formatAllowedKinds(target.Kind))
	}
	name := given.GetKind() + " " + given.GetName()
	if err := validateTarget(given, k, target); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	metadata, _ := value["metadata"].(map[string]any)
	if err := validateFields(metadata, "metadata.", "name", "namespace", "labels", "annotations"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if err := validateFields(value, "", "apiVersion", "kind", "metadata", "spec"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if err := validateSchema(value, k); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if k.GroupVersionKind == quotaKind {
		if err := validateQuota(given); err != nil {
			return nil, fmt.Errorf("objects: %s: %w", name, err)
		}
	}
	return completeObject(given, k, target), nil
}

// validateTarget refuses an object outside of the target.
func validateTarget(given *unstructured.Unstructured, k supportedKind, target Target) error {
	namespace := given.GetNamespace()
	switch {
	case k.Namespaced && namespace != "" && namespace != target.Namespace:
		return fmt.Errorf("is for namespace %s; a policy renders into its project's namespace alone, %s: leave metadata.namespace out",
			namespace, target.Namespace)
	case !k.Namespaced && namespace != "":
		return fmt.Errorf("is cluster-scoped and has metadata.namespace %s; leave it out", namespace)
	case !k.Namespaced && !target.allowsName(given.GetName()):
		return fmt.Errorf("metadata.name: a cluster-scoped object of %s has one of the names %s, where the suffix has no dot", target,
			target.allowedNames())
	}
	return nil
}

// validateSchema refuses fields that the schema does not have and that would be
// dropped silently. For queue kinds the API server refuses them.
func validateSchema(value map[string]any, k supportedKind) error {
	if !k.isQueue() {
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, k.New(), true)
	}
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(value, "metadata", field); err != nil {
			return err
		}
	}
	return nil
}

// completeObject returns the object with the target's namespace and labels.
func completeObject(given *unstructured.Unstructured, k supportedKind, target Target) *unstructured.Unstructured {
	complete := &unstructured.Unstructured{Object: map[string]any{}}
	complete.SetGroupVersionKind(k.GroupVersionKind)
	complete.SetName(given.GetName())
	if k.Namespaced {
		complete.SetNamespace(target.Namespace)
	}
	if annotations := given.GetAnnotations(); len(annotations) > 0 {
		complete.SetAnnotations(annotations)
	}
	labels := given.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for _, label := range subjectLabels {
		delete(labels, label) // only the one of the subject
	}
	maps.Copy(labels, target.labels())
	complete.SetLabels(labels)
	if spec, ok := given.Object["spec"]; ok {
		complete.Object["spec"] = spec
	}
	return complete
}

// validateFields refuses every field but these.
func validateFields(object map[string]any, prefix string, fields ...string) error {
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields, field) {
			errs = append(errs, fmt.Errorf("%s%s may not be set by a policy; allowed are %s%s",
				prefix, field, prefix, strings.Join(fields, ", "+prefix)))
		}
	}
	return errors.Join(errs...)
}
