// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podschema

// Kind is the JSON form of a value.
type Kind uint8

// The kinds that a value may have.
const (
	Text      Kind = iota
	Bool           // true or false
	Number         // a whole number
	Quantity       // an amount: "500m", "16Gi", 2
	IntOrText      // a port's number or its name
	Free           // any JSON; nothing is known of it
	Struct         // a map whose keys are known
	Dict           // a map whose keys the author chooses
	List
)

var kindNames = [...]string{"a string", "a boolean", "a whole number", "a quantity", "a whole number or a string", "any value", "an object", "an object", "a list"}

// String names the kind for a sentence: "a string".
func (k Kind) String() string { return kindNames[k] }

// Type is one part of a pod or a Job. Types are shared and never change.
type Type struct {
	// Name is the name of the Go type; empty for dicts and lists.
	Name string
	// Kind is the form.
	Kind Kind
	// Atomic parts are replaced whole. Of lists these are all without keys.
	Atomic bool
	// Keys are the fields that tell an associative list's elements apart. A set
	// of scalars has none and is not Atomic.
	Keys []string
	// Elem is what a list or a dict holds.
	Elem *Type

	fields map[string]*Field
}

// Field is one field of a struct.
type Field struct {
	// Name is its name in JSON.
	Name string
	// Owner is the Go type that declares it; of an embedded field the embedded
	// type: the field httpGet of a probe is the ProbeHandler's.
	Owner string
	// Type is what it holds.
	Type *Type
	// Pointer fields can hold a zero that differs from being absent.
	Pointer bool
	// Union fields exclude each other: at most one of a struct's may be set, and
	// they are replaced together.
	Union bool
}

// ID is what tables call the field: "PodSpec.schedulerName".
func (f *Field) ID() string { return f.Owner + "." + f.Name }

// Pod returns the type of a pod, or of a pod template, without its status.
func Pod() *Type { return pod }

// Job returns the type of a Job, without its status. Its template's parts are those
// of a pod.
func Job() *Type { return job }

// Field returns the field of that name, and nil if the struct has none.
func (t *Type) Field(name string) *Field { return t.fields[name] }

// Fields returns the names of a struct's fields, in no order.
func (t *Type) Fields() []string {
	names := make([]string, 0, len(t.fields))
	for name := range t.fields {
		names = append(names, name)
	}
	return names
}

// Associative lists are merged element by element.
func (t *Type) Associative() bool { return t.Kind == List && !t.Atomic }

// Leaf parts are written as one value, which may be a whole list or struct.
func (t *Type) Leaf() bool { return t.Kind < Struct || t.Atomic }

// IsKey tells whether the field is among the keys of the list.
func (t *Type) IsKey(name string) bool {
	for _, key := range t.Keys {
		if key == name {
			return true
		}
	}
	return false
}
