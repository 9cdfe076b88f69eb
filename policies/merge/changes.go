// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// DesiredChanges are the changes of one policy to one object. Values are JSON as
// encoding/json decodes it (map[string]any, []any, string, bool, nil, int64, float64).
type DesiredChanges struct {
	Policy string
	// Defaults are merged under the object: they set only fields that its author did not
	// set.
	Defaults map[string]any
	// Overrides are merged over the object; null removes a field.
	Overrides map[string]any
	// Nodes are ANDed into every required node selector term.
	Nodes []corev1.NodeSelectorRequirement
	// Append adds elements to atomic lists that have no equal element.
	Append []Addition
	// Remove are paths; every match is removed.
	Remove []Path
}

// Addition is one element for one atomic list.
type Addition struct {
	// Path leads to the list.
	Path Path
	// Value is the element.
	Value any
}

// Path selects parts of an object. A step is a field name, a map of the fields that
// identify a list element, or "*" for all elements. In Rego it is an array:
// ["spec","containers","*","env",{"name":"X"}].
type Path []any

// Finding is a reason why a policy denies an object or warns about it.
type Finding struct {
	Policy string
	// Message describes the request and the limit to the object's author.
	Message string
	// Field is the path of the part concerned; may be empty.
	Field string
	// Fix says what to do; may be empty.
	Fix string
}

// Limits far above the needs of pods and policies, so that no input uses too much time
// or memory of the webhook.
const (
	maxDepth         = 100     // levels of an object or of a policy's value, and steps of a path
	maxValues        = 200_000 // values in an object
	maxDesiredValues = 10_000  // values in the changes of one policy
	maxElements      = 1_000   // entries of nodes, append and remove, each
	maxPlanNodes     = 100_000 // parts of the object that all policies name, with "*" counted for each container
)

// validateSize rejects objects and changes above the limits.
func validateSize(object map[string]any, desired []DesiredChanges) error {
	left := maxValues
	if !fitsWithin(object, maxDepth, &left) {
		return &InvalidObjectError{"", fmt.Sprintf("is too large to evaluate: it may have %d levels and %d values", maxDepth, maxValues)}
	}
	for i := range desired {
		if problem := exceededLimit(&desired[i]); problem != "" {
			return &InvalidChangesError{desired[i].Policy, "result", "is too large: " + problem}
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

// fitsWithin reports whether a value has at most the given levels and left parts. It
// subtracts the number of its parts from left.
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

// addPlanTooLarge records, once, that the plan exceeds maxPlanNodes.
func (b *planBuilder) addPlanTooLarge() {
	if b.invalidChanges == nil {
		b.addInvalidChanges(b.policy, "result",
			"is too large for this object: all policies together may change %d of its parts, with %q counted for each container",
			maxPlanNodes, allContainers)
	}
}
