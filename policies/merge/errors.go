// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// IntentError is a policy that wants what cannot be: its author is to correct it.
type IntentError struct {
	// Policy is its name.
	Policy string
	// Path is the part of the object, as in spec.containers[main].image.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error says it in one line.
func (e *IntentError) Error() string {
	return fmt.Sprintf("policy %s: %s: %s", e.Policy, e.Path, e.Message)
}

// ObjectError is an object that is not of a pod's form, or too large to judge.
type ObjectError struct {
	// Path is the part of the object; empty for all of it.
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error says it in one line.
func (e *ObjectError) Error() string {
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
	// Wants are at least two, sorted.
	Wants []Want
}

// Want is what one or more policies want at a path.
type Want struct {
	// Policies are their names, sorted.
	Policies []string
	// Value is what they want there; nil if it shall go, or with Within.
	Value any
	// Within tells that they write parts of what stands there.
	Within bool
}

// Error names the policies, paths and values of the first few conflicts.
func (e *ConflictError) Error() string {
	const few = 4
	var said []string
	for _, c := range e.Conflicts[:min(few, len(e.Conflicts))] {
		var wants []string
		for _, w := range c.Wants {
			wants = append(wants, w.String())
		}
		said = append(said, c.Path+": "+strings.Join(wants, ", "))
	}
	if more := len(e.Conflicts) - few; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return "policies conflict: " + strings.Join(said, "; ")
}

// String says who wants what: "policy core.gpu wants 2".
func (w Want) String() string {
	if w.Within {
		return named(w.Policies, "writes in it", "write in it")
	}
	if w.Value == nil {
		return named(w.Policies, "wants", "want") + " it removed"
	}
	return named(w.Policies, "wants", "want") + " " + shown(w.Value)
}

// named begins a sentence: "policy a wants", "policies a and b want".
func named(policies []string, one, several string) string {
	if len(policies) == 1 {
		return "policy " + policies[0] + " " + one
	}
	last := len(policies) - 1
	return "policies " + strings.Join(policies[:last], ", ") + " and " + policies[last] + " " + several
}

// conflicts collects them, and the faults of single policies.
type faults struct {
	conflicts []Conflict
	intents   []error
	object    *ObjectError
}

// conflict notes that the wants exclude each other.
func (f *faults) conflict(path string, wants ...Want) {
	slices.SortFunc(wants, func(a, b Want) int {
		return cmp.Or(slices.Compare(a.Policies, b.Policies), cmp.Compare(shown(a.Value), shown(b.Value)))
	})
	f.conflicts = append(f.conflicts, Conflict{path, wants})
}

// intent notes a policy's fault.
func (f *faults) intent(policy, path, format string, args ...any) {
	f.intents = append(f.intents, &IntentError{policy, path, fmt.Sprintf(format, args...)})
}

// shape notes that the object is not of a pod's form; the first by path is kept.
func (f *faults) shape(path, message string) {
	if f.object == nil || path < f.object.Path {
		f.object = &ObjectError{path, message}
	}
}

// err is all faults as one error that does not depend on the intents' order, and
// nil if there are none.
func (f *faults) err() error {
	if f.object != nil {
		return f.object
	}
	if len(f.intents) > 0 {
		slices.SortFunc(f.intents, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		f.intents = slices.CompactFunc(f.intents, func(a, b error) bool { return a.Error() == b.Error() })
		return errors.Join(f.intents...)
	}
	if len(f.conflicts) > 0 {
		slices.SortFunc(f.conflicts, func(a, b Conflict) int { return cmp.Compare(a.Path, b.Path) })
		return &ConflictError{f.conflicts}
	}
	return nil
}
