// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// The policies of a replaced set take memory for half a minute only, also without another update. Guards
// invariant 10 of the design.
func TestFormerSetsAreFreedWithoutAnotherUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		number := func() int {
			synctest.Wait()
			e.former.mu.Lock()
			defer e.former.mu.Unlock()
			return len(e.former.sets)
		}
		e.Update(nil)
		e.Update([]Source{{Name: "a", Rego: "package a\n\nwarn contains \"a\""}})
		time.Sleep(formerSetAge - time.Second)
		if got := number(); got != 1 {
			t.Errorf("%d former sets before the age, want 1", got)
		}
		time.Sleep(time.Second)
		if got := number(); got != 0 {
			t.Errorf("%d former sets after it, want none", got)
		}
	})
}
