// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

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

// Wanted is what policies want to be there for a subject.
type Wanted struct {
	// Objects are complete, each once, in the order in which they are applied.
	Objects []*unstructured.Unstructured
	// Faults are what policies want and cannot have.
	Faults []Fault
}

// Check takes what policies rendered, less what is not theirs to render and
// what two of them render differently, which neither may have.
func Check(rendering engine.Rendering, place Place) Wanted {
	var wanted Wanted
	for _, failure := range rendering.Failures {
		if failure.Enforcement != v1alpha1.EnforcementDryRun {
			wanted.Faults = append(wanted.Faults, Fault{Policy: failure.Policy, Quota: true, Queue: true, Err: failure.Err})
		}
	}
	by := make(map[key]engine.Object, len(rendering.Objects))
	contested := map[key]bool{}
	for _, object := range rendering.Objects {
		// Nothing of a value that is no quota can be a missing quota.
		fault := Fault{Policy: object.Policy, Quota: object.Value["kind"] == quotaKind.Kind, Queue: isQueueName(object.Value["kind"])}
		whole, err := check(object.Value, place)
		if err != nil {
			fault.Err = err
			wanted.Faults = append(wanted.Faults, fault)
			continue
		}
		k := keyOf(whole)
		switch first, twice := by[k]; {
		case !twice:
			by[k] = engine.Object{Policy: object.Policy, Value: whole.Object}
		case !reflect.DeepEqual(first.Value, whole.Object):
			contested[k] = true
			fault.Err = fmt.Errorf("%s is rendered by policy %s too, and not the same; one of them has to give it another name", k, first.Policy)
			wanted.Faults = append(wanted.Faults, fault)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(by), key.compare) {
		if !contested[k] {
			wanted.Objects = append(wanted.Objects, &unstructured.Unstructured{Object: by[k].Value})
		}
	}
	slices.SortStableFunc(wanted.Faults, func(a, b Fault) int { return cmp.Compare(a.Policy, b.Policy) })
	return wanted
}

// check is the object with the place's namespace and labels, or why a policy may
// not render it.
func check(value map[string]any, place Place) (*unstructured.Unstructured, error) {
	given := &unstructured.Unstructured{Object: value}
	k, _, ok := kindOf(given.GetAPIVersion(), given.GetKind())
	if !ok || !slices.Contains(k.of, place.Kind) {
		return nil, fmt.Errorf("objects: %s %s %s is not a kind that policies may render for a %s; allowed are %s",
			given.GetAPIVersion(), given.GetKind(), given.GetName(), place.Kind, allowedKinds(place.Kind))
	}
	name := given.GetKind() + " " + given.GetName()
	if err := placed(given, k, place); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	metadata, _ := value["metadata"].(map[string]any)
	if err := only(metadata, "metadata.", "name", "namespace", "labels", "annotations"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if err := only(value, "", "apiVersion", "kind", "metadata", "spec"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if err := decodable(value, k); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	return whole(given, k, place), nil
}

// placed refuses an object that is not for the place.
func placed(given *unstructured.Unstructured, k kind, place Place) error {
	namespace := given.GetNamespace()
	switch {
	case k.namespaced && namespace != "" && namespace != place.Namespace:
		return fmt.Errorf("is for namespace %s; a policy renders into its project's namespace alone, %s: leave metadata.namespace out", namespace, place.Namespace)
	case !k.namespaced && namespace != "":
		return fmt.Errorf("is cluster-wide and has metadata.namespace %s; leave it out", namespace)
	case !k.namespaced && !place.mayName(given.GetName()):
		return fmt.Errorf("metadata.name: a cluster-wide object of %s has one of the names %s, where the suffix has no dot", place, place.names())
	}
	return nil
}

// decodable refuses what the schema does not know and would be dropped without a
// word. The schema of a queue kind is the API server's, which refuses such fields
// when they are applied.
func decodable(value map[string]any, k kind) error {
	if !k.isQueue() {
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, k.object(), true)
	}
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(value, "metadata", field); err != nil {
			return err
		}
	}
	return nil
}

// whole is the object with the place's namespace and labels.
func whole(given *unstructured.Unstructured, k kind, place Place) *unstructured.Unstructured {
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
	for _, label := range labelOf {
		delete(labels, label) // only the one of the subject
	}
	maps.Copy(labels, place.labels())
	whole.SetLabels(labels)
	if spec, ok := given.Object["spec"]; ok {
		whole.Object["spec"] = spec
	}
	return whole
}

// only refuses every other field.
func only(object map[string]any, prefix string, fields ...string) error {
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields, field) {
			errs = append(errs, fmt.Errorf("%s%s is not a policy's to write; allowed are %s%s",
				prefix, field, prefix, strings.Join(fields, ", "+prefix)))
		}
	}
	return errors.Join(errs...)
}

// key names an object of a place: the place of its kind in the list, and its name.
type key struct {
	kind int
	name string
}

func keyOf(object *unstructured.Unstructured) key {
	_, at, _ := kindOf(object.GetAPIVersion(), object.GetKind())
	return key{at, object.GetName()}
}

func (k key) String() string { return kinds[k.kind].Kind + " " + k.name }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), strings.Compare(k.name, other.name))
}
