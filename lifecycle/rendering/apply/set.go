// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Kind is a kind of object that an Applier applies.
type Kind struct {
	schema.GroupVersionKind
	// Namespaced reports whether objects of the kind are in namespaces.
	Namespaced bool
	// New and NewList return an empty object and list of a kind that the client
	// caches. Both are nil for a queue kind, of which Applier.Queues has the metadata.
	New     func() client.Object
	NewList func() client.ObjectList
	// Content returns the part of an object that is applied, without labels and
	// annotations. Queue kinds need none: their generation shows a change.
	Content func(client.Object) any
	// Immutable returns the part that the API server refuses to change; an object in
	// which it differs is deleted and created again. Nil if there is none.
	Immutable func(client.Object) any
	// NoDefaults reports that the API server adds nothing to the content. Then the
	// cached object is compared with the desired one; else with what it was after it
	// was applied, which a Cache remembers.
	NoDefaults bool
}

// isQueue reports whether the kind comes from a scheduler's CRD.
func (k Kind) isQueue() bool { return k.New == nil }

// typed returns an unstructured object in the kind's own type.
func (k Kind) typed(object *unstructured.Unstructured) (client.Object, error) {
	into := k.New()
	if same, ok := into.(*unstructured.Unstructured); ok {
		same.Object = object.Object
		return same, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return nil, fmt.Errorf("decode %s: %w", describeObject(object), err)
	}
	return into, nil
}

// matches reports whether an observed object has the content, the labels and the
// annotations of the desired one.
func (k Kind) matches(observed, desired client.Object) bool {
	return containsAll(observed.GetLabels(), desired.GetLabels()) && containsAll(observed.GetAnnotations(), desired.GetAnnotations()) &&
		equality.Semantic.DeepEqual(k.Content(observed), k.Content(desired))
}

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// Set is a group of objects with one owner that are applied and pruned together.
type Set struct {
	// Owner names the owner in messages, such as "project thesis".
	Owner string
	// Labels are on every object of the set. The set's objects are found by them.
	Labels map[string]string
	// Kinds are the kinds of the set's objects, in the order in which they are
	// applied. Pruning goes the other way.
	Kinds []Kind
	// Namespace has the namespaced objects; empty if they may be in any namespace.
	Namespace string
	// NewNamespace reports that Namespace was created just now and is empty.
	NewNamespace bool
	// Conflict returns why lifecycle may not take over an existing object, or nil.
	// The default refuses what lifecycle neither applied nor labeled.
	Conflict func(existing *metav1.PartialObjectMetadata) error
	// MayDelete reports whether an object with the set's labels is deleted once it is
	// not desired. The default deletes each.
	MayDelete func(existing *metav1.PartialObjectMetadata) bool

	// target is the subject of rendered objects, by which queue kinds are listed.
	target Target
}

// ManagedLabels returns the labels on every object that lifecycle applies.
func ManagedLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// kind returns the kind of an object of the set and its place in the order.
func (s Set) kind(gvk schema.GroupVersionKind) (Kind, int) {
	at := slices.IndexFunc(s.Kinds, func(k Kind) bool { return k.GroupVersionKind == gvk })
	if at < 0 {
		return Kind{}, at
	}
	return s.Kinds[at], at
}

func (s Set) compare(a, b objectKey) int {
	_, first := s.kind(a.GroupVersionKind)
	_, second := s.kind(b.GroupVersionKind)
	return cmp.Or(cmp.Compare(first, second), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// conflict returns why lifecycle may not take over an existing object.
func (s Set) conflict(existing *metav1.PartialObjectMetadata) error {
	switch {
	case s.Conflict != nil:
		return s.Conflict(existing)
	case existing.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || isAppliedByLifecycle(existing):
		return nil // one that lifecycle applied stays lifecycle's when its label is removed
	}
	return fmt.Errorf("%s exists and is not Sluice's; rename or delete it", describeObject(existing))
}

// objectKey identifies an object.
type objectKey struct {
	schema.GroupVersionKind
	namespace, name string
}

func keyOf(object *unstructured.Unstructured) objectKey {
	return objectKey{object.GroupVersionKind(), object.GetNamespace(), object.GetName()}
}

func (k objectKey) String() string { return k.Kind + " " + k.name }

// describeObject returns an object's kind, name and namespace for a message.
func describeObject(object client.Object) string {
	text := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
	if object.GetNamespace() != "" {
		text += " in namespace " + object.GetNamespace()
	}
	return text
}

// isAppliedByLifecycle reports whether lifecycle applied the object.
func isAppliedByLifecycle(existing *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(existing.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManagerLifecycle && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// ToUnstructured returns a typed object, whose kind is set, as it is applied.
func ToUnstructured(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describeObject(object), err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}
