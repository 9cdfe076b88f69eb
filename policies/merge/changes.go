// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// DesiredChanges is what one policy wants of one object. Values are JSON as
// encoding/json decodes it (map[string]any, []any, string, bool, nil, int64,
// float64).
type DesiredChanges struct {
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

// Finding is why a policy refuses an object or warns about it.
type Finding struct {
	// Policy is the policy's name.
	Policy string
	// Message is for the object's author: what was asked, what is the limit.
	Message string
	// Field is the path in the object that it is about; may be empty.
	Field string
	// Fix is what to do; may be empty.
	Fix string
}

// Limits far beyond what a pod or a policy needs, so that no input can take the
// webhook's time or memory.
const (
	maxDepth         = 100     // levels of an object, of an intent's value, and steps of a path
	maxValues        = 200_000 // values in an object
	maxDesiredValues = 10_000  // values in one intent
	maxElements      = 1_000   // entries of an intent's nodes, append and remove each
	maxPlanNodes     = 100_000 // parts of the object that all intents speak of, "*" counted for each container
)

// validateSize refuses what is larger.
func validateSize(object map[string]any, intents []DesiredChanges) error {
	left := maxValues
	if !fitsWithin(object, maxDepth, &left) {
		return &InvalidObjectError{"", fmt.Sprintf("is too large to evaluate: it may have %d levels and %d values", maxDepth, maxValues)}
	}
	for i := range intents {
		if problem := exceededLimit(&intents[i]); problem != "" {
			return &InvalidChangesError{intents[i].Policy, "result", "is too large: " + problem}
		}
	}
	return nil
}

func exceededLimit(in *DesiredChanges) string {
	for rule, entries := range map[string]int{"nodes": len(in.Nodes), "append": len(in.Append), "remove": len(in.Remove)} {
		if entries > maxElements {
			return fmt.Sprintf("%s may have %d entries", rule, maxElements)
		}
	}
	left := maxDesiredValues
	ok := fitsWithin(in.Defaults, maxDepth, &left) && fitsWithin(in.Overrides, maxDepth, &left)
	for _, addition := range in.Append {
		ok = ok && fitsWithin(addition.Value, maxDepth, &left)
	}
	for _, path := range in.Remove {
		ok = ok && fitsWithin([]any(path), maxDepth, &left)
	}
	if !ok {
		return fmt.Sprintf("it may have %d levels and %d values", maxDepth, maxDesiredValues)
	}
	return ""
}

// fitsWithin counts a value's parts down from left.
func fitsWithin(v any, levels int, left *int) bool {
	*left--
	if levels == 0 || *left < 0 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, in := range v {
			if !fitsWithin(in, levels-1, left) {
				return false
			}
		}
	case []any:
		for _, in := range v {
			if !fitsWithin(in, levels-1, left) {
				return false
			}
		}
	}
	return true
}

// addPlanTooLarge notes that the plan is full; once is enough.
func (b *planBuilder) addPlanTooLarge() {
	if b.invalidChanges == nil {
		b.addInvalidChanges(b.policy, "result", "is too large for this object: with %q counted for each container, all policies may change %d of its parts", allContainers, maxPlanNodes)
	}
}
