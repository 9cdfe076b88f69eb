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

// Desired is what policies want to be there for a subject.
type Desired struct {
	// Objects are complete, each once, in the order in which they are applied.
	Objects []*unstructured.Unstructured
	// Failures are what policies want and cannot have.
	Failures []Failure
}

// Validate takes what policies rendered, less what is not theirs to render and
// what two of them render differently, which neither may have.
func Validate(rendering engine.Rendering, place Target) Desired {
	var wanted Desired
	for _, failure := range rendering.Failures {
		if failure.Enforcement != v1alpha1.EnforcementDryRun {
			wanted.Failures = append(wanted.Failures, Failure{Policy: failure.Policy, AffectsQuota: true, AffectsQueue: true, Err: failure.Err})
		}
	}
	by := make(map[objectKey]engine.Object, len(rendering.Objects))
	contested := map[objectKey]bool{}
	for _, object := range rendering.Objects {
		// Nothing of a value that is no quota can be a missing quota.
		fault := Failure{Policy: object.Policy, AffectsQuota: object.Value["kind"] == quotaKind.Kind, AffectsQueue: isQueueKindName(object.Value["kind"])}
		whole, err := validateObject(object.Value, place)
		if err != nil {
			fault.Err = err
			wanted.Failures = append(wanted.Failures, fault)
			continue
		}
		k := objectKeyOf(whole)
		switch first, twice := by[k]; {
		case !twice:
			by[k] = engine.Object{Policy: object.Policy, Value: whole.Object}
		case !reflect.DeepEqual(first.Value, whole.Object):
			contested[k] = true
			fault.Err = fmt.Errorf("%s is rendered by policy %s too, and not the same; one of them has to give it another name", k, first.Policy)
			wanted.Failures = append(wanted.Failures, fault)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(by), objectKey.compare) {
		if !contested[k] {
			wanted.Objects = append(wanted.Objects, &unstructured.Unstructured{Object: by[k].Value})
		}
	}
	slices.SortStableFunc(wanted.Failures, func(a, b Failure) int { return cmp.Compare(a.Policy, b.Policy) })
	return wanted
}

// validateObject is the object with the place's namespace and labels, or why a policy may
// not render it.
func validateObject(value map[string]any, place Target) (*unstructured.Unstructured, error) {
	given := &unstructured.Unstructured{Object: value}
	k, _, ok := lookupKind(given.GetAPIVersion(), given.GetKind())
	if !ok || !slices.Contains(k.subjects, place.Kind) {
		return nil, fmt.Errorf("objects: %s %s %s is not a kind that policies may render for a %s; allowed are %s",
			given.GetAPIVersion(), given.GetKind(), given.GetName(), place.Kind, formatAllowedKinds(place.Kind))
	}
	name := given.GetKind() + " " + given.GetName()
	if err := validateTarget(given, k, place); err != nil {
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
	return completeObject(given, k, place), nil
}

// validateTarget refuses an object that is not for the place.
func validateTarget(given *unstructured.Unstructured, k kindInfo, place Target) error {
	namespace := given.GetNamespace()
	switch {
	case k.namespaced && namespace != "" && namespace != place.Namespace:
		return fmt.Errorf("is for namespace %s; a policy renders into its project's namespace alone, %s: leave metadata.namespace out", namespace, place.Namespace)
	case !k.namespaced && namespace != "":
		return fmt.Errorf("is cluster-wide and has metadata.namespace %s; leave it out", namespace)
	case !k.namespaced && !place.allowsName(given.GetName()):
		return fmt.Errorf("metadata.name: a cluster-wide object of %s has one of the names %s, where the suffix has no dot", place, place.allowedNames())
	}
	return nil
}

// validateSchema refuses what the schema does not know and would be dropped without a
// word. The schema of a queue kind is the API server's, which refuses such fields
// when they are applied.
func validateSchema(value map[string]any, k kindInfo) error {
	if !k.isQueue() {
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, k.newObject(), true)
	}
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(value, "metadata", field); err != nil {
			return err
		}
	}
	return nil
}

// completeObject is the object with the place's namespace and labels.
func completeObject(given *unstructured.Unstructured, k kindInfo, place Target) *unstructured.Unstructured {
	whole := &unstructured.Unstructured{Object: map[string]any{}}
	whole.SetGroupVersionKind(k.GroupVersionKind)
	whole.SetName(given.GetName())
	if k.namespaced {
		whole.SetNamespace(place.Namespace)
	}
	if annotations := given.GetAnnotations(); len(annotations) > 0 {
		whole.SetAnnotations(annotations)
	}
	labels := given.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for _, label := range subjectLabels {
		delete(labels, label) // only the one of the subject
	}
	maps.Copy(labels, place.labels())
	whole.SetLabels(labels)
	if spec, ok := given.Object["spec"]; ok {
		whole.Object["spec"] = spec
	}
	return whole
}

// validateFields refuses every other field.
func validateFields(object map[string]any, prefix string, fields ...string) error {
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields, field) {
			errs = append(errs, fmt.Errorf("%s%s is not a policy's to write; allowed are %s%s",
				prefix, field, prefix, strings.Join(fields, ", "+prefix)))
		}
	}
	return errors.Join(errs...)
}

// objectKey names an object of a place: the place of its kind in the list, and its name.
type objectKey struct {
	kind int
	name string
}

func objectKeyOf(object *unstructured.Unstructured) objectKey {
	_, at, _ := lookupKind(object.GetAPIVersion(), object.GetKind())
	return objectKey{at, object.GetName()}
}

func (k objectKey) String() string { return supportedKinds[k.kind].Kind + " " + k.name }

func (k objectKey) compare(other objectKey) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), strings.Compare(k.name, other.name))
}
