// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// The guarantees of time limits and the tests that show them, in this package and in
// package timelimit:
//
//	Decide is deterministic and returns a next decision       timelimit: TestDecideInvariants,
//	                                                          TestDecideIsIndependentOfCallFrequency
//	no duplicate Notices after crashes and restarts           TestReconcilerInvariants, TestReconcileAfterCrashAtAnyWrite,
//	                                                          TestStaleCacheRecordsNoNotice
//	no stop at a limit without a timely announcement          TestReconcilerInvariants, TestReconcileAfterCrashAtAnyWrite,
//	                                                          timelimit: TestDecideInvariants
//	running time is exact                                     TestReconcilerInvariants, TestStopTimesMatchExpected
//	extensions and changed limits leave the promised time     timelimit: TestDecideInvariants, TestDecideStopsAtRuntimeLimit
//	no stop of exempt projects, on hold or in a dry run       TestReconcilerInvariants
//	crashes during downtime change nothing                    TestCrashesWhileDownAreIrrelevant
//	the order of simultaneous events is irrelevant            TestReconcileOrderIsIrrelevant
//	each call returns the next wake-up, within an hour        TestReconcileAlwaysRequeues
//	deadlines are exact across summer time changes            TestLimitsAreExactAcrossDaylightSaving
//	a changed time zone moves no deadline                     TestTimeZoneChangeKeepsDeadline
//
// Package project tests that no step of a project's expiry precedes its warning.

// simulatedEvent is an event of a history, after some time.
type simulatedEvent struct {
	after time.Duration
	kind  string
	// amount is the parameter of the event; its meaning depends on the kind.
	amount int
}

func (e simulatedEvent) String() string {
	return fmt.Sprintf("%s later: %s %d", e.after, e.kind, e.amount)
}

// drawEvents draws a history: a few days of a namespace with two Jobs of one template. It is
// drawn before the simulation, because a panic cannot leave a synctest bubble.
func drawEvents(t *rapid.T, kinds ...string) []simulatedEvent {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) simulatedEvent {
		return simulatedEvent{
			after:  time.Duration(rapid.SampledFrom([]int{0, 1, 29, 60, 61, 5 * 60, 23 * 60, 50 * 60}).Draw(t, "minutes")) * time.Minute,
			kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			amount: rapid.IntRange(0, 8).Draw(t, "amount"),
		}
	}), 1, 14).Draw(t, "history")
}

// allEvents are the kinds of events. More frequent ones are listed twice.
var allEvents = []string{
	"start", "start", "stop", "replace", "recreate", "copy", "idle", "busy", "no samples", "extend",
	"limit", "idle timeout", "dry run", "exempt", "downtime", "downtime", "crash", "crash", "restart",
}

// limitChecks reduces the number of checks of tests that simulate whole histories, unless the
// flag rapid.checks is set.
func limitChecks(t *testing.T) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() != checks.DefValue {
		return
	}
	if err := checks.Value.Set("10"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(checks.DefValue) })
}

// In every history: no stop without announcement, no stop of exempt workloads, no duplicate
// Notice, exact running time, no unnecessary write.
func TestReconcilerInvariants(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, allEvents...)
		result := simulate(t, history, false)
		for _, fault := range append(result.faults, result.violations()...) {
			rt.Error(fault)
		}
	})
}

// An extension that moves no deadline, since lifecycle was away, does not announce it again.
// Guards invariant 5 of the design.
func TestExtensionAfterDowntimeRepeatsNoWarning(t *testing.T) {
	result := simulate(t, []simulatedEvent{{kind: "start"}, {kind: "downtime", amount: 7}, {kind: "extend", amount: 5}}, false)
	for _, fault := range append(result.faults, result.violations()...) {
		t.Error(fault)
	}
}

// The order in which pods, workloads and clocks are reconciled at one time is random. It does
// not change the result.
func TestReconcileOrderIsIrrelevant(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, slices.DeleteFunc(slices.Clone(allEvents), func(kind string) bool { return kind == "crash" })...)
		first, second := simulate(t, history, false), simulate(t, history, false)
		if diff := cmp.Diff(first.finalState, second.finalState); diff != "" || len(first.faults)+len(second.faults) > 0 {
			rt.Fatalf("%v %v (-first +second):\n%s", first.faults, second.faults, diff)
		}
	})
}

// Failed starts of lifecycle during a downtime change nothing.
func TestCrashesWhileDownAreIrrelevant(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, "start", "stop", "copy", "extend", "limit", "downtime", "downtime", "dry run")
		once, repeated := simulate(t, history, false), simulate(t, history, true)
		if diff := cmp.Diff(once.finalState, repeated.finalState); diff != "" || len(once.faults)+len(repeated.faults) > 0 {
			rt.Fatalf("%v %v (-one downtime +crashes):\n%s", once.faults, repeated.faults, diff)
		}
	})
}

// expectedStops calculates the stops of a Job from its starts and ends alone: it is stopped
// after two days of running time without a pause of an hour.
func expectedStops(history []simulatedEvent) (ends []time.Duration) {
	var now, ran, paused time.Duration
	pods, stopped := 0, false
	pass := func(span time.Duration) {
		if left := 48*time.Hour - ran; pods > 0 && span >= left {
			ends = append(ends, now+left)
			pods, stopped, paused = 0, true, now+left
		}
		if now += span; pods > 0 {
			ran += span
		}
	}
	for _, e := range history {
		pass(e.after)
		switch {
		case e.kind == "start":
			if pods == 0 && now-paused >= time.Hour {
				ran, stopped = 0, false
			}
			if !stopped { // else it is stopped again
				pods++
			}
		case pods > 0:
			pods, paused = pods-1, now
		}
	}
	pass(time.Minute)
	return ends
}

func TestStopTimesMatchExpected(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, "start", "start", "stop")
		var got []time.Duration
		result := simulate(t, history, false)
		for _, stop := range result.stops {
			got = append(got, stop.at.Sub(result.startedAt))
		}
		if diff := cmp.Diff(expectedStops(history), got); diff != "" || len(result.faults) > 0 {
			rt.Fatalf("%v stops (-want +got):\n%s", result.faults, diff)
		}
	})
}

// violations returns the guarantees that a history violated.
func (l *simulationResult) violations() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, stop := range l.stops {
		if stop.exempt {
			fault("%s was stopped (%s) although it is exempt", stop.name, stop.reason)
		}
		if stop.reason == v1alpha1.EndMaxRuntime && !l.isAnnounced(stop) {
			fault("%s was stopped at %s without announcement; notices:\n%s", stop.name, stop.at.Sub(l.startedAt), l.formatNotices())
		}
	}
	counts := map[string]int{}
	for _, n := range l.notices {
		if n.Status.Phase == v1alpha1.NoticeSuperseded {
			continue
		}
		of := n.Spec.Deadline // a moved deadline is no other message
		if of == nil {
			of = &n.Spec.DueAt
		}
		counts[fmt.Sprint(n.Spec.Kind, " ", n.Spec.Subject.Name, " ", n.Spec.Lead, " ", of, " ", n.Spec.Recipient.Email)]++
	}
	repeated := 0
	for _, times := range counts {
		repeated += times - 1
	}
	if repeated > l.crashes {
		fault("%d repetitions with %d crashes:\n%s", repeated, l.crashes, l.formatNotices())
	}
	return faults
}

// isAnnounced reports whether a stop was announced at least the shortest lead before, with
// that deadline or an earlier one.
func (l *simulationResult) isAnnounced(stop simulatedStop) bool {
	return slices.ContainsFunc(l.notices, func(n v1alpha1.Notice) bool {
		return n.Spec.Kind == v1alpha1.NoticeWorkloadEnding && n.Status.Phase != v1alpha1.NoticeSuperseded && n.Spec.Subject.Name == stop.name &&
			!n.Spec.Deadline.After(stop.at) && !l.recordedAt[n.Name].Add(slices.Min(defaultLeads)).After(stop.at)
	})
}

// formatNotices formats the notices in the order of their records.
func (l *simulationResult) formatNotices() string {
	slices.SortFunc(l.notices, func(a, b v1alpha1.Notice) int { return l.recordedAt[a.Name].Compare(l.recordedAt[b.Name]) })
	var text strings.Builder
	for _, n := range l.notices {
		deadline := time.Duration(0)
		if n.Spec.Deadline != nil {
			deadline = n.Spec.Deadline.Sub(l.startedAt)
		}
		fmt.Fprintf(&text, "  %s: %s %s, lead %v, deadline %s %s\n", l.recordedAt[n.Name].Sub(l.startedAt), n.Spec.Kind, n.Spec.Subject.Name, n.Spec.Lead, deadline, n.Status.Phase)
	}
	return text.String()
}
