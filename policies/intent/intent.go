// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package intent

import corev1 "k8s.io/api/core/v1"

// Intent is what one policy wants of one object. Values are JSON as
// encoding/json decodes it (map[string]any, []any, string, bool, nil, int64,
// float64).
type Intent struct {
	// Policy is the policy's name, for messages and conflicts.
	Policy string
	// Defaults are merged under the object: they fill only what its author left
	// open.
	Defaults map[string]any
	// Overrides are merged over it; null removes.
	Overrides map[string]any
	// Nodes are ANDed into every required node selector term.
	Nodes []corev1.NodeSelectorRequirement
	// Append are elements for atomic lists, added unless an equal one is there.
	Append []Addition
	// Remove are paths whose every matching element is taken out.
	Remove []Path
}

// Addition is one element for one atomic list.
type Addition struct {
	// Path leads to the list.
	Path Path
	// Value is the element.
	Value any
}

// Path leads through an object: field names, keys of a list's elements as maps
// of the fields that identify them, and "*" for all elements of a list. It is
// written as an array in Rego: ["spec","containers","*","env",{"name":"X"}].
type Path []any

// Complaint is why a policy refuses an object or warns about it.
type Complaint struct {
	// Policy is the policy's name.
	Policy string
	// Message is for the object's author: what was asked, what is the limit.
	Message string
	// Field is the path in the object that it is about; may be empty.
	Field string
	// Fix is what to do; may be empty.
	Fix string
}
