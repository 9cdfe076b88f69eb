// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
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
		time.Sleep(QuarantinePeriod - time.Second)
		q.addOverrun("a")
		check("a", true, ErrQuarantined)
		check("b", true, nil)

		q.addOverrun("b")
		check("c", false, nil)
		q.addOverrun("c")
		check("d", false, ErrQuarantined)
		check("d", true, nil) // the author of the object is at fault

		time.Sleep(QuarantinePeriod)
		check("a", true, nil)
		check("d", false, nil)
		q.addOverrun("a") // one, after a long time
		check("a", true, nil)
	})
}

// What one process quarantined, another one does not evaluate either, as long as the policy does not
// change, and no longer than the quarantine period whatever the other process says. Guards invariant
// 10 of the design.
func TestAdoptedQuarantines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newEngine := func(rego string, generation int64) *Engine {
			t.Helper()
			e, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, report := range e.Update([]Source{{Name: "team", Rego: rego, Generation: generation}}) {
				for _, problem := range report.Problems {
					t.Fatal(problem)
				}
			}
			return e
		}
		quarantineOf := func(e *Engine) *quarantine { return &e.current.Load().members[0].quarantine }
		const rego = "package team\ndeny contains \"x\"\n"
		first := newEngine(rego, 1)
		for range quarantineOverruns {
			quarantineOf(first).addOverrun("a")
		}
		quarantineOf(first).addOverrun("b")
		since := time.Now()
		want := []Quarantine{{
			Version: first.current.Load().Versions()[0], Project: "a", Reason: QuarantineTimedOut, Since: since, Until: since.Add(QuarantinePeriod),
		}}
		if got := first.Quarantines(); !slices.Equal(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}

		check := func(e *Engine, project string, want error) {
			t.Helper()
			if got := quarantineOf(e).check(project, false); !errors.Is(got, want) {
				t.Errorf("project %s: %v, want %v", project, got, want)
			}
		}
		second := newEngine(rego, 1)
		second.AdoptQuarantines(want)
		check(second, "a", ErrQuarantined)
		check(second, "b", nil)
		if own := second.Quarantines(); own != nil {
			t.Errorf("adopted quarantines are reported as own ones: %+v", own)
		}
		if names := second.QuarantinedPolicies(); !slices.Equal(names, []string{"team"}) {
			t.Errorf("quarantined policies: %v", names)
		}
		for name, changed := range map[string]*Engine{
			"another source": newEngine(rego+"# changed\n", 1), "another generation": newEngine(rego, 2),
		} {
			changed.AdoptQuarantines(want)
			if names := changed.QuarantinedPolicies(); names != nil {
				t.Errorf("%s: quarantined %v", name, names)
			}
		}

		forged := want[0]
		forged.Project, forged.Until = AllProjects, since.Add(1000*time.Hour)
		second.AdoptQuarantines([]Quarantine{forged})
		check(second, "z", ErrQuarantined)
		time.Sleep(QuarantinePeriod)
		check(second, "z", nil)

		second.AdoptQuarantines([]Quarantine{forged})
		check(second, "z", ErrQuarantined)
		second.AdoptQuarantines(nil)
		check(second, "z", nil)
	})
}

// A stuck evaluation is a quarantine until it ends, and its end is announced in whole periods.
func TestQuarantineOfAStuckEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quarantine
		q.addStuck("a")
		since := time.Now()
		for until := since.Add(QuarantinePeriod); until.Before(since.Add(3 * QuarantinePeriod)); until = until.Add(QuarantinePeriod) {
			want := []Quarantine{{Project: "a", Reason: QuarantineStuck, Since: since, Until: until}}
			if got := q.list(Version{}, false); !slices.Equal(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			time.Sleep(QuarantinePeriod)
		}
		q.finishStuck("a")
		if got := q.list(Version{}, false); len(got) > 0 {
			t.Errorf("after its end: %+v", got)
		}
		for _, project := range []string{"b", "c", "d", "e"} {
			q.addStuck(project)
		}
		if got := q.list(Version{}, false); len(got) != 5 || got[0].Project != AllProjects {
			t.Errorf("stuck for four projects: %+v", got)
		}
		if got := q.list(Version{}, true); len(got) != 4 {
			t.Errorf("a built-in policy stuck for four projects: %+v", got)
		}
	})
}
