// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// entry is facts in the form that a reflector passes on: what it holds of all
// pods until the first list is whole must be small, too.
type entry struct {
	facts           facts
	resourceVersion string
	// end is whether it is the bookmark that ends the initial events.
	end bool
}

// GetObjectKind implements [runtime.Object].
func (e *entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (e *entry) DeepCopyObject() runtime.Object { c := *e; return &c }

// GetObjectMeta implements [metav1.ObjectMetaAccessor], with what a reflector
// asks for. It is made when it is asked for, since metadata are larger than all
// that is kept.
func (e *entry) GetObjectMeta() metav1.Object {
	meta := &metav1.ObjectMeta{Name: e.facts.name, ResourceVersion: e.resourceVersion}
	if e.facts.namespace != (shared{}) {
		meta.Namespace = e.facts.namespace.Value()
	}
	if e.end {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta
}

// entries is a list of them.
type entries struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*entry
}

// DeepCopyObject implements [runtime.Object].
func (l *entries) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]*entry(nil), l.Items...)
	return &c
}

// sink is the Store as a reflector fills it.
type sink struct{ store *Store }

// Add implements [cache.ReflectorStore].
func (s sink) Add(object any) error { return s.put(object) }

// Update implements [cache.ReflectorStore].
func (s sink) Update(object any) error { return s.put(object) }

func (s sink) put(object any) error {
	e, err := entryOf(object)
	if err == nil {
		s.store.put(&e.facts)
	}
	return err
}

// Delete implements [cache.ReflectorStore].
func (s sink) Delete(object any) error {
	e, err := entryOf(object)
	if err == nil {
		s.store.drop(e.facts.key())
	}
	return err
}

// Replace implements [cache.ReflectorStore].
func (s sink) Replace(list []any, _ string) error {
	all := make([]*entry, len(list))
	for i, object := range list {
		var err error
		if all[i], err = entryOf(object); err != nil {
			return err
		}
	}
	s.store.replace(all)
	s.store.filled()
	return nil
}

// Resync implements [cache.ReflectorStore]; nothing here is ever forgotten.
func (s sink) Resync() error { return nil }

func entryOf(object any) (*entry, error) {
	if e, ok := object.(*entry); ok {
		return e, nil
	}
	return nil, fmt.Errorf("gpupods: got a %T from the stream of pods", object)
}
