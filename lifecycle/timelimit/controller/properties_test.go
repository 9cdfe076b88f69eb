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

// What is promised of time is shown here and in package ending, by these tests:
//
//	the same question has the same answer, and asks to be     ending: TestDecideKeepsItsPromises,
//	asked again later                                         TestBeingAskedMoreOftenChangesNothing
//	nobody is told twice, whatever crashes and restarts       TestWhateverHappens, TestACrashAtAnyCall,
//	                                                          TestNobodyIsToldByAnOldCache
//	no end at a limit unannounced, or announced too late      TestWhateverHappens, TestACrashAtAnyCall,
//	                                                          ending: TestDecideKeepsItsPromises
//	the time counted is at most that since it began, and at   TestWhateverHappens,
//	least that in which it ran; and it is exact               TestStartsAndStopsAreReckonedRight
//	an extension never brings the end nearer, and a cut       ending: TestDecideKeepsItsPromises,
//	limit leaves the longest lead or what was left            TestAWorkloadEnds
//	what is exempt, held or in a dry run does not end         TestWhateverHappens
//	starts that come to nothing while it is away are nothing  TestHowOftenItDiesWhileAwayIsIrrelevant
//	the order of what happens at one instant is irrelevant    TestTheOrderOfEventsIsIrrelevant
//	each look names the next, within the hour                 TestEachLookNamesTheNext
//	deadlines are exact where clocks change to summer time    TestLimitsAreExactWhereTheClocksChange,
//	and back, and stay where a time zone is changed           TestAnotherTimeZoneMovesNoDeadline
//
// That no step of a project's expiry comes before its warning was sent is for the
// package that takes these steps.

// simulatedEvent is one thing that happens, after some time.
type simulatedEvent struct {
	after time.Duration
	kind  string
	// amount is in hours, or which of several; what it means the happening says.
	amount int
}

func (e simulatedEvent) String() string {
	return fmt.Sprintf("%s later: %s %d", e.after, e.kind, e.amount)
}

// drawEvents is a history: a few days of a namespace with two Jobs of one template.
// It is drawn before it is lived, since a bubble of time cannot be left by a panic.
func drawEvents(t *rapid.T, does ...string) []simulatedEvent {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) simulatedEvent {
		return simulatedEvent{
			after:  time.Duration(rapid.SampledFrom([]int{0, 1, 29, 60, 61, 5 * 60, 23 * 60, 50 * 60}).Draw(t, "minutes")) * time.Minute,
			kind:   rapid.SampledFrom(does).Draw(t, "does"),
			amount: rapid.IntRange(0, 8).Draw(t, "amount"),
		}
	}), 1, 14).Draw(t, "history")
}

// allEvents is all that can happen. What comes more often is there twice.
var allEvents = []string{
	"start", "start", "stop", "replace", "make again", "copy", "idle", "busy", "no samples", "extend",
	"limit", "idle limit", "dry run", "exempt", "away", "away", "crash", "crash", "restart",
}

// limitChecks has a test that lives whole histories do with fewer of them, unless more are
// asked for.
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

// It guards what is promised of every history: no end unannounced, none of what is
// spared, nothing said twice, time counted right, nothing written in vain.
func TestReconcilerInvariants(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, allEvents...)
		lived := simulate(t, history, false)
		for _, fault := range append(lived.faults, lived.violations()...) {
			rt.Error(fault)
		}
	})
}

// It guards that the order in which pods, workloads and clocks are looked at at
// one instant changes nothing: it is another each time.
func TestReconcileOrderIsIrrelevant(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, slices.DeleteFunc(slices.Clone(allEvents), func(does string) bool { return does == "crash" })...)
		first, second := simulate(t, history, false), simulate(t, history, false)
		if diff := cmp.Diff(first.finalState, second.finalState); diff != "" || len(first.faults)+len(second.faults) > 0 {
			rt.Fatalf("%v %v (-once +once more):\n%s", first.faults, second.faults, diff)
		}
	})
}

// It guards that starts which come to nothing, while it is away, change nothing.
func TestCrashesWhileDownAreIrrelevant(t *testing.T) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		history := drawEvents(rt, "start", "stop", "copy", "extend", "limit", "away", "away", "dry run")
		once, often := simulate(t, history, false), simulate(t, history, true)
		if diff := cmp.Diff(once.finalState, often.finalState); diff != "" || len(once.faults)+len(often.faults) > 0 {
			rt.Fatalf("%v %v (-away once +dying often):\n%s", once.faults, often.faults, diff)
		}
	})
}

// expectedStops is when a Job ends that only starts and stops, reckoned by hand: when
// it has run for two days with no hour's pause between.
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
		lived := simulate(t, history, false)
		for _, stop := range lived.stops {
			got = append(got, stop.at.Sub(lived.startedAt))
		}
		if diff := cmp.Diff(expectedStops(history), got); diff != "" || len(lived.faults) > 0 {
			rt.Fatalf("%v ends (-want +got):\n%s", lived.faults, diff)
		}
	})
}

// violations are the promises that a history broke.
func (l *simulationResult) violations() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, stop := range l.stops {
		if stop.exempt {
			fault("%s was stopped (%s) although it is spared", stop.name, stop.reason)
		}
		if stop.reason == v1alpha1.EndMaxRuntime && !l.isAnnounced(stop) {
			fault("%s was stopped at %s unannounced; said was\n%s", stop.name, stop.at.Sub(l.startedAt), l.formatNotices())
		}
	}
	said := map[string]int{}
	for _, n := range l.notices {
		if n.Status.Phase == v1alpha1.NoticeSuperseded {
			continue
		}
		of := n.Spec.Deadline // one that moves is not another message
		if of == nil {
			of = &n.Spec.DueAt
		}
		said[fmt.Sprint(n.Spec.Kind, " ", n.Spec.Subject.Name, " ", n.Spec.Lead, " ", of, " ", n.Spec.Recipient.Email)]++
	}
	again := 0
	for _, times := range said {
		again += times - 1
	}
	if again > l.crashes {
		fault("%d repetitions with %d crashes:\n%s", again, l.crashes, l.formatNotices())
	}
	return faults
}

// isAnnounced tells whether an end was announced as it must be: the shortest lead
// before, with that deadline or an earlier one.
func (l *simulationResult) isAnnounced(stop simulatedStop) bool {
	return slices.ContainsFunc(l.notices, func(n v1alpha1.Notice) bool {
		return n.Spec.Kind == v1alpha1.NoticeWorkloadEnding && n.Status.Phase != v1alpha1.NoticeSuperseded && n.Spec.Subject.Name == stop.name &&
			!n.Spec.Deadline.After(stop.at) && !l.recordedAt[n.Name].Add(slices.Min(defaultLeads)).After(stop.at)
	})
}

// formatNotices are the notices in the order in which they were recorded.
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
