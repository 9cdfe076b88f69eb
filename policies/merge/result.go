// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"sluice.dev/policies/merge/jsonpatch"
)

// Result is what became of an object.
type Result struct {
	// Object is as the policies want it. It shares what is unchanged with the
	// object that entered, and values with the intents: it is to be read only.
	Object map[string]any
	// Warnings are for the object's author, sorted by path.
	Warnings []Warning
	// ChangedPaths are the paths that each policy changed, sorted; a policy that
	// changed nothing is not in it.
	ChangedPaths map[string][]string

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
		return fmt.Sprintf("%s %s, which was %s", policiesPhrase(w.Policies, "removed", "removed"), w.Path, formatValue(w.Old))
	}
	return fmt.Sprintf("%s %s: %s is now %s", policiesPhrase(w.Policies, "replaced", "replaced"), w.Path, formatValue(w.Old), formatValue(w.New))
}

// Patch returns the smallest RFC 6902 patch that makes of the object that entered
// what Object is, and nil if both are the same. The same input gives the same
// bytes.
func (r Result) Patch() ([]byte, error) {
	operations := jsonpatch.Diff(r.original, r.Object)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// formatValue is a value in a sentence: the API server cuts warnings at 256 bytes, and
// two values must fit.
func formatValue(v any) string {
	const longest = 60
	written, err := json.Marshal(v)
	if err != nil { // not JSON
		return truncate(fmt.Sprint(v), longest)
	}
	return truncate(string(written), longest)
}

// truncate is as much of a text as is shown.
func truncate(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	for !utf8.RuneStart(s[longest]) {
		longest--
	}
	return s[:longest] + "..."
}

// appliedChange is one path that policies changed.
type appliedChange struct {
	node     *node // whose want it was; nil for a removal
	policies []string
	path     string
}

// pathsByPolicy sorts changes for the Result.
func pathsByPolicy(changes []appliedChange) map[string][]string {
	paths := map[string][]string{}
	for _, c := range changes {
		if c.node != nil && c.node.reverted {
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

// InvalidChangesError is a policy that wants what cannot be: its author is to correct it.
type InvalidChangesError struct {
	// Policy is its name.
	Policy string
	// Path is the part of the object, as in spec.containers[main].image.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error says it in one line.
func (e *InvalidChangesError) Error() string {
	return fmt.Sprintf("policy %s: %s: %s", e.Policy, e.Path, e.Message)
}

// InvalidObjectError is an object that is not of a pod's form, or too large to judge.
type InvalidObjectError struct {
	// Path is the part of the object; empty for all of it.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error says it in one line.
func (e *InvalidObjectError) Error() string {
	if e.Path == "" {
		return "the object " + e.Message
	}
	return e.Path + ": " + e.Message
}

// ConflictError is about policies that cannot all have their way.
type ConflictError struct {
	// Conflicts are sorted by path; there is at least one.
	Conflicts []Conflict
}

// Conflict is one path at which policies want different values.
type Conflict struct {
	// Path is the part of the object.
	Path string
	// Desired are at least two, sorted.
	Desired []DesiredValue
}

// DesiredValue is what one or more policies want at a path.
type DesiredValue struct {
	// Policies are their names, sorted.
	Policies []string
	// Value is what they want there; nil if it shall go, or with Within.
	Value any
	// Nested tells that they write parts of what stands there.
	Nested bool
}

// Error names the policies, paths and values of the first few conflicts.
func (e *ConflictError) Error() string {
	const few = 4
	var clauses []string
	for _, c := range e.Conflicts[:min(few, len(e.Conflicts))] {
		var values []string
		for _, v := range c.Desired {
			values = append(values, v.String())
		}
		clauses = append(clauses, c.Path+": "+strings.Join(values, ", "))
	}
	if more := len(e.Conflicts) - few; more > 0 {
		clauses = append(clauses, fmt.Sprintf("and %d more", more))
	}
	return "policies conflict: " + strings.Join(clauses, "; ")
}

// String returns a clause: "policy core.gpu sets 2".
func (v DesiredValue) String() string {
	switch {
	case v.Nested:
		return policiesPhrase(v.Policies, "sets", "set") + " a part of it"
	case v.Value == nil:
		return policiesPhrase(v.Policies, "removes", "remove") + " it"
	}
	return policiesPhrase(v.Policies, "sets", "set") + " " + formatValue(v.Value)
}

// policiesPhrase begins a sentence: "policy a wants", "policies a and b want".
func policiesPhrase(policies []string, one, several string) string {
	if len(policies) == 1 {
		return "policy " + policies[0] + " " + one
	}
	last := len(policies) - 1
	return "policies " + strings.Join(policies[:last], ", ") + " and " + policies[last] + " " + several
}

// conflicts collects them, and the faults of single policies.
type errorCollector struct {
	conflicts      []Conflict
	invalidChanges []error
	invalidObject  *InvalidObjectError
}

// addConflict notes that the wants exclude each other.
func (f *errorCollector) addConflict(path string, wants ...DesiredValue) {
	slices.SortFunc(wants, func(a, b DesiredValue) int {
		return cmp.Or(slices.Compare(a.Policies, b.Policies), cmp.Compare(formatValue(a.Value), formatValue(b.Value)))
	})
	f.conflicts = append(f.conflicts, Conflict{path, wants})
}

// addInvalidChanges notes a policy's fault.
func (f *errorCollector) addInvalidChanges(policy, path, format string, args ...any) {
	f.invalidChanges = append(f.invalidChanges, &InvalidChangesError{policy, path, fmt.Sprintf(format, args...)})
}

// addInvalidObject notes that the object is not of a pod's form; the first by path is kept.
func (f *errorCollector) addInvalidObject(path, message string) {
	if f.invalidObject == nil || path < f.invalidObject.Path {
		f.invalidObject = &InvalidObjectError{path, message}
	}
}

// err is all faults as one error that does not depend on the intents' order, and
// nil if there are none.
func (f *errorCollector) err() error {
	if f.invalidObject != nil {
		return f.invalidObject
	}
	if len(f.invalidChanges) > 0 {
		slices.SortFunc(f.invalidChanges, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		f.invalidChanges = slices.CompactFunc(f.invalidChanges, func(a, b error) bool { return a.Error() == b.Error() })
		return errors.Join(f.invalidChanges...)
	}
	if len(f.conflicts) > 0 {
		slices.SortFunc(f.conflicts, func(a, b Conflict) int { return cmp.Compare(a.Path, b.Path) })
		return &ConflictError{f.conflicts}
	}
	return nil
}
