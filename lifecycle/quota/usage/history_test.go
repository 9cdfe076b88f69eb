// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/workload"
)

// historyEvent is one event of a history. Each kind defines the meaning of its numbers.
type historyEvent struct {
	action string
	// target selects one of several; seconds is a duration or a distance.
	target, seconds int
	milli           int
	done, crash     bool
}

func (h historyEvent) String() string {
	return fmt.Sprintf("%s of=%d seconds=%d milli=%d done=%v crash=%v", h.action, h.target, h.seconds, h.milli, h.done, h.crash)
}

// eventWeights is all that can happen, with the longest that it takes or how far it goes.
var eventWeights = map[string]int{
	"run": 8, "end": 0, "live": 90 * 60, "soon": 20, "step": 40 * 24 * 3600, "fail": 0, "restart": 0,
}

// drawHistory is a history. It is drawn before it is lived, since a bubble of time cannot
// be left by a panic.
func drawHistory(t *rapid.T) []historyEvent {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) historyEvent {
		h := historyEvent{action: rapid.SampledFrom(slices.Sorted(maps.Keys(eventWeights))).Draw(t, "does")}
		h.target = rapid.IntRange(0, 5).Draw(t, "of")
		h.seconds = rapid.IntRange(0, eventWeights[h.action]).Draw(t, "seconds")
		switch h.action {
		case "run":
			h.milli = rapid.IntRange(1, 8000).Draw(t, "milli")
		case "fail":
			h.done, h.crash = rapid.Bool().Draw(t, "done"), rapid.Bool().Draw(t, "crash")
		}
		return h
	}), 1, 40).Draw(t, "history")
}

// recordingT records errors within a synctest bubble for the test outside of it.
type recordingT struct{ failures []string }

func (*recordingT) Helper() {}

func (w *recordingT) Errorf(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *recordingT) Fatal(args ...any) { w.Fatalf("%s", fmt.Sprint(args...)) }

func (w *recordingT) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	panic(w)
}

// For every history, no more usage is recorded than pods had. Without a crash all of it is
// recorded; after a crash all but the usage of pods that had just ended.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := drawHistory(rt)
		for _, fault := range failuresOf(t, history) {
			rt.Error(fault)
		}
	})
}

// Histories in which something got lost once.
func TestRegressionHistories(t *testing.T) {
	tests := map[string][]historyEvent{
		// The first was attributed to no user, and the common cursor passed the second.
		"two pods of a stranger, and a crash": {
			{action: "run", target: 2, milli: 1},
			{action: "live", seconds: 2},
			{action: "run", target: 2, milli: 1},
			{action: "step", seconds: 19930},
			{action: "fail", target: 1, done: true, crash: true},
			{action: "live", seconds: 712},
		},
		// Each month whose record was unread took another ten seconds.
		"months from before a restart that are no longer read": {
			{action: "run", milli: 6946, seconds: 3},
			{action: "run", target: 2, milli: 1, seconds: 4},
			{action: "step", seconds: 9 * 366 * 24 * 3600},
			{action: "live", seconds: 40},
			{action: "restart"},
		},
	}
	for name, history := range tests {
		t.Run(name, func(t *testing.T) {
			for _, fault := range failuresOf(t, history) {
				t.Error(fault)
			}
		})
	}
}

// failuresOf is what goes wrong in a history. It is lived in a bubble of time.
func failuresOf(t *testing.T, history []historyEvent) []string {
	t.Helper()
	recorder := &recordingT{}
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if r := recover(); r != nil && r != any(recorder) {
				recorder.Errorf("panic: %v", r)
			}
		}()
		runHistory(recorder, history)
	})
	return recorder.failures
}

// runHistory lives through a history, and looks after each step.
func runHistory(t *recordingT, history []historyEvent) {
	w := newTestEnv(t, "2026-10-31T20:00:00Z", newClock("train", "anna"), newClock("serve", "ben"))
	for i, h := range history {
		w.applyEvent(i, h)
		w.checkNoOvercount()
	}
	w.failAt = 0
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.stopPod(string(uid))
	}
	w.advance(2 * time.Minute)
	w.checkNoOvercount()
	w.checkNoUndercount()
}

func (w *testEnv) applyEvent(i int, h historyEvent) {
	span := time.Duration(h.seconds) * time.Second
	switch h.action {
	case "run":
		of := []string{"train", "serve", "stranger"}[h.target%3]
		w.startPod(fmt.Sprintf("%s-%d", of, i), workload.Milli(h.milli), span)
	case "end":
		if running := slices.Sorted(maps.Keys(w.pods)); len(running) > 0 {
			w.stopPod(string(running[h.target%len(running)]))
		}
	case "live", "soon":
		w.advance(span)
	case "step":
		w.advanceToWholeSecond() // nothing is at the very instant of a step
		time.Sleep(time.Millisecond)
		w.time.line, _ = w.time.line.WithStep(span+time.Second, time.Now())
		w.advanceToWholeSecond()
	case "fail":
		w.failAt, w.done, w.crash = w.writes+1+h.target%3, h.done, h.crash
	case "restart":
		w.killProcess()
		w.restart()
	}
}

// checkNoOvercount fails if a record has more usage of a user than the user had.
func (w *testEnv) checkNoOvercount() {
	used := maps.Clone(w.used)
	for uid, pod := range w.pods {
		used[w.userOf(string(uid))] += Use{Milli: pod.Milli, From: w.began[pod.Name], To: w.toPolicyTime(time.Now())}.MilliSeconds()
	}
	for user, recorded := range w.recordedByUser() {
		if recorded > used[user] {
			w.t.Fatalf("%d are recorded of %s, and at most %d were used", recorded, user, used[user])
		}
	}
}

// checkNoUndercount fails if recorded usage did not occur or was lost in a crash, or if other usage
// is missing.
func (w *testEnv) checkNoUndercount() {
	recorded := w.recordedByUser()
	for user, used := range w.used {
		if recorded[user] != used-w.lost[user] {
			w.t.Fatalf("%d are recorded of %s, %d were used, and %d of it were lost when processes died", recorded[user], user, used, w.lost[user])
		}
	}
	for _, record := range w.listRecords() {
		if !strings.HasPrefix(record.Name, testNamespace+"-") || record.Status.GPUMilliHours < 0 {
			w.t.Fatalf("record %s: %+v", record.Name, record.Status)
		}
	}
}
