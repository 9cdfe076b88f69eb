// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
	"sluice.dev/policies/engine/document"
)

// Data is what policies read as data.config and data.objects. It never changes; versions share
// what did not change between them. The zero Data and nil are empty.
type Data struct {
	config map[string]ConfigData
	kinds  map[string]*ObjectKind
}

// ConfigData is one ConfigMap that policies read.
type ConfigData struct {
	// Name is the ConfigMap's name.
	Name string
	// Values is an object that has the ConfigMap's keys.
	Values document.Document
	// Unavailable is why the ConfigMap cannot be read; empty if it can.
	Unavailable string

	digest digest
}

// NewConfigData returns the data of a ConfigMap with these values.
func NewConfigData(name string, values map[string]any) (ConfigData, error) {
	encoded, err := json.Marshal(values)
	if err != nil {
		return ConfigData{}, fmt.Errorf("encode ConfigMap %s: %w", name, err)
	}
	return ConfigData{Name: name, Values: document.FromObject(values), digest: sha256.Sum256(encoded)}, nil
}

// ObjectScope is which objects of a kind a policy sees.
type ObjectScope string

// The scopes.
const (
	// ScopeNamespace: those in the namespace of the request.
	ScopeNamespace ObjectScope = "Namespace"
	// ScopeAllNamespaces: those of all namespaces.
	ScopeAllNamespaces ObjectScope = "AllNamespaces"
	// ScopeCluster: the kind has no namespaces.
	ScopeCluster ObjectScope = "Cluster"
)

// DataObject is one object that policies read.
type DataObject struct {
	value  document.Document
	bytes  int
	digest digest
}

// NewDataObject returns an object. The caller must not change it afterwards.
func NewDataObject(object map[string]any) (DataObject, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return DataObject{}, fmt.Errorf("encode object: %w", err)
	}
	return DataObject{value: document.FromObject(object), bytes: len(encoded), digest: sha256.Sum256(encoded)}, nil
}

// Bytes returns the size of the object as JSON.
func (o DataObject) Bytes() int { return o.bytes }

// Equal reports whether policies see no difference between two objects.
func (o DataObject) Equal(other DataObject) bool { return o.digest == other.digest }

// ObjectGroup has the objects of one kind in one namespace, or those of a kind without
// namespaces. It never changes.
type ObjectGroup struct {
	objects map[string]DataObject
	digest  digest
	bytes   int
	once    sync.Once
	term    *ast.Term
}

// NewObjectGroup returns a group of objects by name.
func NewObjectGroup(objects map[string]DataObject) *ObjectGroup {
	g := &ObjectGroup{objects: objects}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		object := objects[name]
		g.bytes += object.bytes
		hashText(h, name)
		hashText(h, string(object.digest[:]))
	}
	g.digest = digest(h.Sum(nil))
	return g
}

// asTerm returns the group as an OPA object, which the first policy that reads it creates.
func (g *ObjectGroup) asTerm() *ast.Term {
	g.once.Do(func() {
		pairs := make([][2]*ast.Term, 0, len(g.objects))
		for name, object := range g.objects {
			pairs = append(pairs, [2]*ast.Term{document.KeyTerm(name), object.value.Term()})
		}
		g.term = ast.NewTerm(ast.NewObject(pairs...))
	})
	return g.term
}

// ObjectKind has the objects of one kind. It never changes.
type ObjectKind struct {
	// Kind is the kind with its API group, as in a policy's match: Job.batch, or Service.
	Kind string
	// Scope is which of them a policy sees.
	Scope ObjectScope
	// Groups are the objects by namespace; those of a kind without namespaces are under "".
	Groups map[string]*ObjectGroup
	// Unavailable is why the objects cannot be read; empty if they can.
	Unavailable string
}

// NewData returns the data that consists of these ConfigMaps and kinds.
func NewData(configs []ConfigData, kinds []ObjectKind) *Data {
	d := &Data{config: make(map[string]ConfigData, len(configs)), kinds: make(map[string]*ObjectKind, len(kinds))}
	for _, config := range configs {
		d.config[config.Name] = config
	}
	for i := range kinds {
		d.kinds[kinds[i].Kind] = &kinds[i]
	}
	return d
}

// configNames returns the sorted names of the ConfigMaps.
func (d *Data) configNames() []string {
	if d == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.config))
}

// kindNames returns the sorted names of the kinds.
func (d *Data) kindNames() []string {
	if d == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.kinds))
}

func (d *Data) configOf(name string) (ConfigData, bool) {
	if d == nil {
		return ConfigData{}, false
	}
	config, ok := d.config[name]
	return config, ok
}

func (d *Data) kindOf(name string) *ObjectKind {
	if d == nil {
		return nil
	}
	return d.kinds[name]
}

// group returns the objects of a namespace; an empty group if there are none.
func (k *ObjectKind) group(namespace string) *ObjectGroup {
	if group := k.Groups[namespace]; group != nil {
		return group
	}
	return emptyGroup
}

var emptyGroup = NewObjectGroup(nil)

// digestOf returns the digest of the objects that a request in a namespace sees.
func (k *ObjectKind) digestOf(namespace string) digest {
	switch k.Scope {
	case ScopeNamespace:
		return k.group(namespace).digest
	case ScopeCluster:
		return k.group("").digest
	}
	return k.digestOfAll()
}

// digestOfAll returns the digest of all objects.
func (k *ObjectKind) digestOfAll() digest {
	h := sha256.New()
	for _, namespace := range slices.Sorted(maps.Keys(k.Groups)) {
		hashText(h, namespace)
		sum := k.Groups[namespace].digest
		hashText(h, string(sum[:]))
	}
	return digest(h.Sum(nil))
}

// KindName returns the name of a kind in data.objects, as in a policy's match: Job.batch, or Service.
func KindName(group, kind string) string { return strings.TrimSuffix(kind+"."+group, ".") }

// Value returns all data as Go values, those of all namespaces too: for unit tests, which have no request.
func (d *Data) Value() map[string]any {
	config, objects := map[string]any{}, map[string]any{}
	for _, name := range d.configNames() {
		if one, _ := d.configOf(name); one.Unavailable == "" {
			config[name] = one.Values.Value()
		}
	}
	for _, name := range d.kindNames() {
		kind := d.kindOf(name)
		namespaces := map[string]any{}
		for namespace, group := range kind.Groups {
			named := map[string]any{}
			for object, value := range group.objects {
				named[object] = value.value.Value()
			}
			if kind.Scope == ScopeCluster {
				namespaces = named
				break
			}
			namespaces[namespace] = named
		}
		objects[name] = namespaces
	}
	return map[string]any{dependency.ConfigData: config, dependency.ObjectData: objects}
}
