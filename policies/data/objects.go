// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// The limits of objects: of each kind, and of all kinds together. In memory an object takes about twenty
// times its size as JSON once a policy has read it.
const (
	MaxObjects     = 10_000
	MaxObjectBytes = 4 << 20
)

// defaultFields are the fields of a kind that names none.
var defaultFields = []string{"spec"}

// Trim returns what policies see of an object: its kind, name, namespace and labels, and the fields of the kind.
// It shares memory with the object.
func Trim(object *unstructured.Unstructured, kind *v1alpha1.PolicyDataKind) map[string]any {
	metadata := map[string]any{"name": object.GetName()}
	if namespace := object.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels, ok, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "labels"); ok {
		metadata["labels"] = labels
	}
	trimmed := map[string]any{"apiVersion": kind.APIVersion, "kind": kind.Kind, "metadata": metadata}
	fields := kind.Fields
	if len(fields) == 0 {
		fields = defaultFields
	}
	// A field before those below it.
	for _, field := range slices.Sorted(slices.Values(fields)) {
		path := strings.Split(field, ".")
		if value, ok, err := unstructured.NestedFieldNoCopy(object.Object, path...); ok && err == nil {
			setField(trimmed, value, path)
		}
	}
	return trimmed
}

// setField sets a field, unless the object already has it as a part of another one.
func setField(object map[string]any, value any, path []string) {
	for _, step := range path[:len(path)-1] {
		next, ok := object[step].(map[string]any)
		if _, exists := object[step]; exists && !ok {
			return
		}
		if !ok {
			next = map[string]any{}
			object[step] = next
		}
		object = next
	}
	last := path[len(path)-1]
	if _, exists := object[last]; !exists {
		object[last] = value
	}
}

// newObject returns a trimmed object as policies read it.
func newObject(object *unstructured.Unstructured, kind *v1alpha1.PolicyDataKind) (engine.DataObject, error) {
	// Numbers become those that policies know, and the rest of the object becomes free.
	decoded, err := document.FromGo(Trim(object, kind))
	if err != nil {
		return engine.DataObject{}, err
	}
	return engine.NewDataObject(decoded.Object())
}

// Scope returns the scope of a kind, Namespace if it has none.
func Scope(kind *v1alpha1.PolicyDataKind) engine.ObjectScope {
	return engine.ObjectScope(cmp.Or(kind.Scope, v1alpha1.PolicyDataNamespace))
}

// collection has the objects of one kind, within the limits. It is safe for concurrent use.
type collection struct {
	kind v1alpha1.PolicyDataKind

	mu sync.Mutex
	// unavailable is why the objects cannot be read; empty if they can.
	unavailable string
	objects     map[string]map[string]engine.DataObject // by namespace and name
	count       int
	bytes       int
	// groups are what policies read, as of the last snapshot; stale are the namespaces that changed since then.
	groups map[string]*engine.ObjectGroup
	stale  map[string]bool
}

// notLoaded is why objects cannot be read at first.
const notLoaded = "the objects are not loaded yet"

func newCollection(kind v1alpha1.PolicyDataKind) *collection {
	c := &collection{kind: kind}
	c.clear(notLoaded)
	return c
}

// clear removes all objects, for a reason.
func (c *collection) clear(unavailable string) {
	c.unavailable, c.count, c.bytes = unavailable, 0, 0
	c.objects = make(map[string]map[string]engine.DataObject)
	c.groups = make(map[string]*engine.ObjectGroup)
	c.stale = make(map[string]bool)
}

// fail makes the objects unavailable. It reports whether that is new.
func (c *collection) fail(reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.unavailable != reason
	c.clear(reason)
	return changed
}

// tooLargeError reports that a kind exceeds the limits.
type tooLargeError struct{}

// Error names the limits.
func (tooLargeError) Error() string {
	return fmt.Sprintf("the kind is too large: more than %d objects, or %d MiB of the fields that policies see", MaxObjects, MaxObjectBytes>>20)
}

// unreadableError reports an object that policies cannot read. Without it they would see a part of the objects only.
type unreadableError struct{ error }

// put adds or replaces an object. It reports whether policies see a difference. The error is a [tooLargeError], or an
// [unreadableError].
func (c *collection) put(object *unstructured.Unstructured) (bool, error) {
	next, err := newObject(object, &c.kind)
	if err != nil {
		return false, unreadableError{fmt.Errorf("%s %s: %w", object.GetNamespace(), object.GetName(), err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	namespace, name := object.GetNamespace(), object.GetName()
	last, exists := c.objects[namespace][name]
	if exists && last.Equal(next) {
		return false, nil
	}
	if !exists {
		c.count++
	}
	c.bytes += next.Bytes() - last.Bytes()
	if c.count > MaxObjects || c.bytes > MaxObjectBytes {
		return true, tooLargeError{}
	}
	if c.objects[namespace] == nil {
		c.objects[namespace] = make(map[string]engine.DataObject)
	}
	c.objects[namespace][name] = next
	c.stale[namespace] = true
	return true, nil
}

// remove removes an object. It reports whether it was there.
func (c *collection) remove(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, exists := c.objects[namespace][name]
	if !exists {
		return false
	}
	delete(c.objects[namespace], name)
	c.count, c.bytes, c.stale[namespace] = c.count-1, c.bytes-last.Bytes(), true
	return true
}

// replaceWith takes over the objects of another collection of the kind, which is complete.
func (c *collection) replaceWith(other *collection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace := range c.objects {
		other.stale[namespace] = true
	}
	for namespace := range other.stale {
		// Namespaces without a difference keep their group, which later versions of the data share.
		if c.groups[namespace] != nil && maps.EqualFunc(c.objects[namespace], other.objects[namespace], engine.DataObject.Equal) {
			other.groups[namespace] = c.groups[namespace]
			delete(other.stale, namespace)
		}
	}
	c.unavailable, c.objects, c.groups, c.stale, c.count, c.bytes = "", other.objects, other.groups, other.stale, other.count, other.bytes
}

// snapshot returns what policies read, and its size.
func (c *collection) snapshot() (engine.ObjectKind, int, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace := range c.stale {
		if len(c.objects[namespace]) == 0 {
			delete(c.groups, namespace)
			delete(c.objects, namespace)
			continue
		}
		c.groups[namespace] = engine.NewObjectGroup(maps.Clone(c.objects[namespace]))
	}
	clear(c.stale)
	return engine.ObjectKind{
		Kind: engine.KindName(c.kind.Group(), c.kind.Kind), Scope: Scope(&c.kind), Groups: maps.Clone(c.groups), Unavailable: c.unavailable,
	}, c.count, c.bytes
}

// limitKinds makes the kinds unavailable that exceed the limits together with those before them. Kinds are sorted by name,
// so that each replica decides alike.
func limitKinds(kinds []sizedKind) []engine.ObjectKind {
	slices.SortFunc(kinds, func(a, b sizedKind) int { return cmp.Compare(a.Kind, b.Kind) })
	all := make([]engine.ObjectKind, 0, len(kinds))
	count, bytes := 0, 0
	for _, kind := range kinds {
		if count+kind.count > MaxObjects || bytes+kind.bytes > MaxObjectBytes {
			kind.Groups = nil
			kind.Unavailable = fmt.Sprintf("the kinds are too large together: more than %d objects, or %d MiB of the fields that policies see",
				MaxObjects, MaxObjectBytes>>20)
		} else {
			count, bytes = count+kind.count, bytes+kind.bytes
		}
		all = append(all, kind.ObjectKind)
	}
	return all
}

// sizedKind is a kind with the number and the bytes of its objects.
type sizedKind struct {
	engine.ObjectKind
	count, bytes int
}

// Collect returns the data of kinds that consists of these objects. Objects of other kinds are ignored.
func Collect(kinds []v1alpha1.PolicyDataKind, objects []unstructured.Unstructured) []engine.ObjectKind {
	var all []sizedKind
	for _, kind := range ValidKinds(kinds) {
		c := newCollection(kind)
		c.unavailable = ""
		for i := range objects {
			if objects[i].GetAPIVersion() != kind.APIVersion || objects[i].GetKind() != kind.Kind {
				continue
			}
			if _, err := c.put(&objects[i]); err != nil {
				c.fail(err.Error())
				break
			}
		}
		one, count, bytes := c.snapshot()
		all = append(all, sizedKind{one, count, bytes})
	}
	return limitKinds(all)
}
