// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quarantine
		check := func(project string, builtIn bool, want error) {
			t.Helper()
			if got := q.check(project, builtIn); !errors.Is(got, want) {
				t.Errorf("project %s, built in %v: %v, want %v", project, builtIn, got, want)
			}
		}
		for range quarantineOverruns - 1 {
			q.addOverrun("a")
		}
		check("a", true, nil)
		time.Sleep(quarantinePeriod - time.Second)
		q.addOverrun("a")
		check("a", true, ErrQuarantined)
		check("b", true, nil)

		q.addOverrun("b")
		check("c", false, nil)
		q.addOverrun("c")
		check("d", false, ErrQuarantined)
		check("d", true, nil) // the author of the object is at fault

		time.Sleep(quarantinePeriod)
		check("a", true, nil)
		check("d", false, nil)
		q.addOverrun("a") // one, after a long time
		check("a", true, nil)
	})
}
