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
)

// Result is the changed object with its history.
type Result struct {
	// Object is the changed object. It shares unchanged parts with the input and with the
	// policies' values: callers must not modify it.
	Object map[string]any
	// Warnings are for the object's author, sorted by path.
	Warnings []Warning
	// ChangedPaths are the sorted paths that each policy changed. Policies that changed
	// nothing are absent.
	ChangedPaths map[string][]string

	original map[string]any
}

// Warning reports that policies replaced or removed a value of the author's.
type Warning struct {
	// Policies are their sorted names; at least one.
	Policies []string
	// Path is the part of the object, such as spec.containers[main].image.
	Path string
	// Old is the author's value and New the present one; New is nil if it was removed.
	Old, New any
}

// String returns one line: "policy core.gpu replaced spec.schedulerName: "mine" is now
// "kai-scheduler"". Long values are truncated.
func (w Warning) String() string {
	old := formatValue(w.Old)
	if w.New == nil {
		return fmt.Sprintf("%s %s, which was %s", policiesPhrase(w.Policies, "removed", "removed"), w.Path, old)
	}
	return fmt.Sprintf("%s %s: %s is now %s", policiesPhrase(w.Policies, "replaced", "replaced"), w.Path, old, formatValue(w.New))
}

// Patch returns the smallest RFC 6902 patch from the original object to Object; nil if
// both are equal. Equal inputs give equal bytes.
func (r Result) Patch() ([]byte, error) {
	operations := Diff(r.original, r.Object)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// formatValue returns a value as JSON for a message. The API server cuts warnings at 256
// bytes, and two values must fit.
func formatValue(v any) string {
	const longest = 60
	written, err := json.Marshal(v)
	if err != nil { // not JSON
		return truncate(fmt.Sprint(v), longest)
	}
	return truncate(string(written), longest)
}

// truncate shortens a text and marks the cut.
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
	node     *node // nil for a removal
	policies []string
	path     string
}

// pathsByPolicy groups changes for the Result.
func pathsByPolicy(changes []appliedChange) map[string][]string {
	paths := map[string][]string{}
	for _, c := range changes {
		if c.node != nil && c.node.reverted {
			continue // another policy's removal deleted this default
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

// InvalidChangesError reports changes that are not possible. The policy's author must
// correct them.
type InvalidChangesError struct {
	Policy string
	// Path is the part of the object, such as spec.containers[main].image.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

func (e *InvalidChangesError) Error() string {
	return fmt.Sprintf("policy %s: %s: %s", e.Policy, e.Path, e.Message)
}

// InvalidObjectError reports an object that does not have the structure of a pod, or is
// too large.
type InvalidObjectError struct {
	// Path is the part of the object; empty for all of it.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

func (e *InvalidObjectError) Error() string {
	if e.Path == "" {
		return "the object " + e.Message
	}
	return e.Path + ": " + e.Message
}

// ConflictError reports policies that set different values.
type ConflictError struct {
	// Conflicts are sorted by path; at least one.
	Conflicts []Conflict
}

// Conflict is one path to which policies set different values.
type Conflict struct {
	// Path is the part of the object.
	Path string
	// Desired are at least two values, sorted.
	Desired []DesiredValue
}

// DesiredValue is the value that one or more policies set at a path.
type DesiredValue struct {
	// Policies are their sorted names.
	Policies []string
	// Value is the value; nil for a removal, or with Nested.
	Value any
	// Nested: the policies set parts of the value.
	Nested bool
}

// Error names the policies, paths and values of the first conflicts.
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

// policiesPhrase starts a sentence: "policy a sets", "policies a and b set".
func policiesPhrase(policies []string, one, several string) string {
	if len(policies) == 1 {
		return "policy " + policies[0] + " " + one
	}
	last := len(policies) - 1
	return "policies " + strings.Join(policies[:last], ", ") + " and " + policies[last] + " " + several
}

// errorCollector collects conflicts, and errors of single policies.
type errorCollector struct {
	conflicts      []Conflict
	invalidChanges []error
	invalidObject  *InvalidObjectError
}

// addConflict records that values exclude each other.
func (f *errorCollector) addConflict(path string, values ...DesiredValue) {
	slices.SortFunc(values, func(a, b DesiredValue) int {
		return cmp.Or(slices.Compare(a.Policies, b.Policies), cmp.Compare(formatValue(a.Value), formatValue(b.Value)))
	})
	f.conflicts = append(f.conflicts, Conflict{path, values})
}

// addInvalidChanges records an error of one policy.
func (f *errorCollector) addInvalidChanges(policy, path, format string, args ...any) {
	f.invalidChanges = append(f.invalidChanges, &InvalidChangesError{policy, path, fmt.Sprintf(format, args...)})
}

// addInvalidObject records that the object does not have the structure of a pod. It keeps
// the first error by path.
func (f *errorCollector) addInvalidObject(path, message string) {
	if f.invalidObject == nil || path < f.invalidObject.Path {
		f.invalidObject = &InvalidObjectError{path, message}
	}
}

// err returns all errors as one, independent of the order of the changes; nil if there
// are none.
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
