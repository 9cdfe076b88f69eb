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

// Place is where a project's objects are, and how they are marked.
type Place struct {
	// Project is the project's name, Namespace that of its namespace.
	Project, Namespace string
}

// PlaceOf is the project's.
func PlaceOf(project *v1alpha1.Project) Place {
	return Place{Project: project.Name, Namespace: project.NamespaceName()}
}

// Ours are the labels on everything that lifecycle renders for any project.
func Ours() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// labels are those on everything that is rendered for the place's project.
func (p Place) labels() map[string]string {
	labels := Ours()
	labels[v1alpha1.LabelProject] = p.Project
	return labels
}

// Wanted is what policies want to be there for a project.
type Wanted struct {
	// Objects are complete and sorted, each once.
	Objects []*unstructured.Unstructured
	// Faults are what policies want and cannot have.
	Faults []Fault
}

// Fault is something that a policy wants and that is not there.
type Fault struct {
	// Policy is the policy's name; empty where it is not the policy's fault.
	Policy string
	// Quota tells that a quota may be missing because of it.
	Quota bool
	// Err is what is wrong, and what to do.
	Err error
}

// String is the fault for people.
func (f Fault) String() string {
	if f.Policy == "" {
		return f.Err.Error()
	}
	return "policy " + f.Policy + ": " + f.Err.Error()
}

// Check takes what policies rendered, less what is not theirs to render and
// what two of them render differently, which neither may have.
func Check(rendering engine.Rendering, place Place) Wanted {
	var wanted Wanted
	for _, failure := range rendering.Failures {
		if failure.Enforcement != v1alpha1.EnforcementDryRun {
			wanted.Faults = append(wanted.Faults, Fault{Policy: failure.Policy, Quota: true, Err: failure.Err})
		}
	}
	by := make(map[string]engine.Object, len(rendering.Objects))
	contested := map[string]bool{}
	for _, object := range rendering.Objects {
		// Nothing of a value that is no quota can be a missing quota.
		quota := object.Value["kind"] == quotaKind.Kind
		whole, err := check(object.Value, place)
		if err != nil {
			wanted.Faults = append(wanted.Faults, Fault{Policy: object.Policy, Quota: quota, Err: err})
			continue
		}
		k := key(whole)
		switch first, twice := by[k]; {
		case !twice:
			by[k] = engine.Object{Policy: object.Policy, Value: whole.Object}
		case !reflect.DeepEqual(first.Value, whole.Object):
			contested[k] = true
			wanted.Faults = append(wanted.Faults, Fault{Policy: object.Policy, Quota: quota, Err: fmt.Errorf(
				"%s is rendered by policy %s too, and not the same; one of them has to give it another name", k, first.Policy)})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(by)) {
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
	k, ok := kindOf(given.GetAPIVersion(), given.GetKind())
	if !ok {
		return nil, fmt.Errorf("objects: %s %s %s is not a kind that policies may render; allowed are %s",
			given.GetAPIVersion(), given.GetKind(), given.GetName(), allowedKinds())
	}
	name := given.GetKind() + " " + given.GetName()
	if namespace := given.GetNamespace(); namespace != "" && namespace != place.Namespace {
		return nil, fmt.Errorf("objects: %s is for namespace %s; a policy renders into its project's namespace alone, %s: leave metadata.namespace out",
			name, namespace, place.Namespace)
	}
	metadata, _ := value["metadata"].(map[string]any)
	if err := only(metadata, "metadata.", "name", "namespace", "labels", "annotations"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	if err := only(value, "", "apiVersion", "kind", "metadata", "spec"); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	// What the schema does not know would be dropped without a word.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, k.object(), true); err != nil {
		return nil, fmt.Errorf("objects: %s: %w", name, err)
	}
	whole := &unstructured.Unstructured{Object: map[string]any{}}
	whole.SetGroupVersionKind(k.GroupVersionKind)
	whole.SetName(given.GetName())
	whole.SetNamespace(place.Namespace)
	if annotations := given.GetAnnotations(); len(annotations) > 0 {
		whole.SetAnnotations(annotations)
	}
	labels := given.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, place.labels())
	whole.SetLabels(labels)
	if spec, ok := value["spec"]; ok {
		whole.Object["spec"] = spec
	}
	return whole, nil
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

// key names an object of a place.
func key(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}
