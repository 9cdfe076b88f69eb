// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
)

// What holds of the examples holds of all pods and intents.
func TestHolds(t *testing.T) {
	done, conflicts, faults := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		object := pods(t)
		var intents []intent.Intent
		for i := range rapid.IntRange(1, 3).Draw(t, "policies") {
			intents = append(intents, wishes(t, string(rune('a'+i))))
		}
		holds(t, object, intents)
		_, err := Apply(object, intents, filled.Cluster{})
		var conflict *ConflictError
		switch {
		case err == nil:
			done++
		case errors.As(err, &conflict):
			conflicts++
		default:
			faults++
		}
	})
	t.Logf("%d applied, %d in conflict, %d at fault", done, conflicts, faults)
	if done < (done+conflicts+faults)/4 {
		t.Error("too few intents can be applied to say much")
	}
}
