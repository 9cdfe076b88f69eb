// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"sluice.dev/policies/merge/patch"
)

// Result is what became of an object.
type Result struct {
	// Object is as the policies want it. It shares what is unchanged with the
	// object that entered, and values with the intents: it is to be read only.
	Object map[string]any
	// Warnings are for the object's author, sorted by path.
	Warnings []Warning
	// Changes are the paths that each policy changed, sorted; a policy that
	// changed nothing is not in it.
	Changes map[string][]string

	original map[string]any
}

// Warning is about something that the author had said, and that policies replaced
// or took out.
type Warning struct {
	// Policies are their names, sorted; at least one.
	Policies []string
	// Path is the part of the object, as in spec.containers[main].image.
	Path string
	// Old is what the author wrote, New what is there now; nil if nothing is.
	Old, New any
}

// String is a line for the author: "policy core.gpu replaced spec.schedulerName:
// "mine" is now "kai-scheduler"". Long values are cut.
func (w Warning) String() string {
	if w.New == nil {
		return fmt.Sprintf("%s %s, which was %s", named(w.Policies, "removed", "removed"), w.Path, shown(w.Old))
	}
	return fmt.Sprintf("%s %s: %s is now %s", named(w.Policies, "replaced", "replaced"), w.Path, shown(w.Old), shown(w.New))
}

// Patch returns the smallest RFC 6902 patch that makes of the object that entered
// what Object is, and nil if both are the same. The same input gives the same
// bytes.
func (r Result) Patch() ([]byte, error) {
	operations := patch.Between(r.original, r.Object)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// shown is a value in a sentence: the API server cuts warnings at 256 bytes, and
// two values must fit.
func shown(v any) string {
	const longest = 60
	written, err := json.Marshal(v)
	if err != nil { // not JSON
		return cut(fmt.Sprint(v), longest)
	}
	return cut(string(written), longest)
}

// cut is as much of a text as is shown.
func cut(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	for !utf8.RuneStart(s[longest]) {
		longest--
	}
	return s[:longest] + "..."
}

// change is one path that policies changed.
type change struct {
	node     *node // whose want it was; nil for a removal
	policies []string
	path     string
}

// byPolicy sorts changes for the Result.
func byPolicy(changes []change) map[string][]string {
	paths := map[string][]string{}
	for _, c := range changes {
		if c.node != nil && c.node.undone {
			continue // a default that another policy's removal took out again
		}
		for _, policy := range c.policies {
			paths[policy] = append(paths[policy], c.path)
		}
	}
	for policy := range maps.Keys(paths) {
		slices.Sort(paths[policy])
		paths[policy] = slices.Compact(paths[policy])
	}
	return paths
}
