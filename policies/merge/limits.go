// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"

	"sluice.dev/policies/intent"
)

// Limits far beyond what a pod or a policy needs, so that no input can take the
// webhook's time or memory.
const (
	deepest      = 100     // levels of an object, of an intent's value, and steps of a path
	mostValues   = 200_000 // values in an object
	mostWanted   = 10_000  // values in one intent
	mostElements = 1_000   // entries of an intent's nodes, append and remove each
	mostNodes    = 100_000 // parts of the object that all intents speak of, "*" counted for each container
)

// withinLimits refuses what is larger.
func withinLimits(object map[string]any, intents []intent.Intent) error {
	left := mostValues
	if !fits(object, deepest, &left) {
		return &ObjectError{"", fmt.Sprintf("is too large to judge: it may have %d levels and %d values", deepest, mostValues)}
	}
	for i := range intents {
		if problem := oversized(&intents[i]); problem != "" {
			return &IntentError{intents[i].Policy, "intent", "is too large: " + problem}
		}
	}
	return nil
}

func oversized(in *intent.Intent) string {
	for rule, entries := range map[string]int{"nodes": len(in.Nodes), "append": len(in.Append), "remove": len(in.Remove)} {
		if entries > mostElements {
			return fmt.Sprintf("%s may have %d entries", rule, mostElements)
		}
	}
	left := mostWanted
	ok := fits(in.Defaults, deepest, &left) && fits(in.Overrides, deepest, &left)
	for _, addition := range in.Append {
		ok = ok && fits(addition.Value, deepest, &left)
	}
	for _, path := range in.Remove {
		ok = ok && fits([]any(path), deepest, &left)
	}
	if !ok {
		return fmt.Sprintf("it may have %d levels and %d values", deepest, mostWanted)
	}
	return ""
}

// fits counts a value's parts down from left.
func fits(v any, levels int, left *int) bool {
	*left--
	if levels == 0 || *left < 0 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, in := range v {
			if !fits(in, levels-1, left) {
				return false
			}
		}
	case []any:
		for _, in := range v {
			if !fits(in, levels-1, left) {
				return false
			}
		}
	}
	return true
}

// tooMany notes that the plan is full; once is enough.
func (b *builder) tooMany() {
	if b.intents == nil {
		b.intent(b.policy, "intent", "is too large for this object: with %q counted for each container, all policies may speak of %d of its parts", every, mostNodes)
	}
}
