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

// happening is one thing that happens. What its numbers mean, it says itself.
type happening struct {
	does string
	// of is which of several; seconds is how long, or how far.
	of, seconds int
	milli       int
	done, crash bool
}

func (h happening) String() string {
	return fmt.Sprintf("%s of=%d seconds=%d milli=%d done=%v crash=%v", h.does, h.of, h.seconds, h.milli, h.done, h.crash)
}

// everything is all that can happen, with the longest that it takes or how far it goes.
var everything = map[string]int{
	"run": 8, "end": 0, "live": 90 * 60, "soon": 20, "step": 40 * 24 * 3600, "fail": 0, "restart": 0,
}

// drawn is a history. It is drawn before it is lived, since a bubble of time cannot
// be left by a panic.
func drawn(t *rapid.T) []happening {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) happening {
		h := happening{does: rapid.SampledFrom(slices.Sorted(maps.Keys(everything))).Draw(t, "does")}
		h.of = rapid.IntRange(0, 5).Draw(t, "of")
		h.seconds = rapid.IntRange(0, everything[h.does]).Draw(t, "seconds")
		switch h.does {
		case "run":
			h.milli = rapid.IntRange(1, 8000).Draw(t, "milli")
		case "fail":
			h.done, h.crash = rapid.Bool().Draw(t, "done"), rapid.Bool().Draw(t, "crash")
		}
		return h
	}), 1, 40).Draw(t, "history")
}

// witness notes what goes wrong in a bubble, to be told outside of it.
type witness struct{ faults []string }

func (*witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *witness) Fatal(args ...any) { w.Fatalf("%s", fmt.Sprint(args...)) }

func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	panic(w)
}

// Whatever happens, in whatever order: no more is recorded than what ran, all of it
// where no process died, and all but what had just ended where one did.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := drawn(rt)
		for _, fault := range faultsOf(t, history) {
			rt.Error(fault)
		}
	})
}

// Histories in which something got lost once.
func TestHistoriesOfOld(t *testing.T) {
	tests := map[string][]happening{
		// The first was put down to nobody, and the cursor of both went past the second.
		"two pods of a stranger, and a crash": {
			{does: "run", of: 2, milli: 1},
			{does: "live", seconds: 2},
			{does: "run", of: 2, milli: 1},
			{does: "step", seconds: 19930},
			{does: "fail", of: 1, done: true, crash: true},
			{does: "live", seconds: 712},
		},
		// Each of the months that nobody had read yet took ten seconds of its own.
		"months from before a restart that nobody reads any more": {
			{does: "run", milli: 6946, seconds: 3},
			{does: "run", of: 2, milli: 1, seconds: 4},
			{does: "step", seconds: 9 * 366 * 24 * 3600},
			{does: "live", seconds: 40},
			{does: "restart"},
		},
	}
	for name, history := range tests {
		t.Run(name, func(t *testing.T) {
			for _, fault := range faultsOf(t, history) {
				t.Error(fault)
			}
		})
	}
}

// faultsOf is what goes wrong in a history. It is lived in a bubble of time.
func faultsOf(t *testing.T, history []happening) []string {
	t.Helper()
	seen := &witness{}
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if r := recover(); r != nil && r != any(seen) {
				seen.Errorf("panic: %v", r)
			}
		}()
		lived(seen, history)
	})
	return seen.faults
}

// lived lives through a history, and looks after each step.
func lived(t *witness, history []happening) {
	w := newWorld(t, "2026-10-31T20:00:00Z", made("train", "anna"), made("serve", "ben"))
	for i, h := range history {
		w.happens(i, h)
		w.neverTooMuch()
	}
	w.failAt = 0
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.end(string(uid))
	}
	w.live(2 * time.Minute)
	w.neverTooMuch()
	w.allButLost()
}

func (w *world) happens(i int, h happening) {
	span := time.Duration(h.seconds) * time.Second
	switch h.does {
	case "run":
		of := []string{"train", "serve", "stranger"}[h.of%3]
		w.run(fmt.Sprintf("%s-%d", of, i), workload.Milli(h.milli), span)
	case "end":
		if running := slices.Sorted(maps.Keys(w.pods)); len(running) > 0 {
			w.end(string(running[h.of%len(running)]))
		}
	case "live", "soon":
		w.live(span)
	case "step":
		w.wholeSecond() // nothing is at the very instant of a step
		time.Sleep(time.Millisecond)
		w.time.line, _ = w.time.line.Advanced(span+time.Second, time.Now())
		w.wholeSecond()
	case "fail":
		w.failAt, w.done, w.crash = w.writes+1+h.of%3, h.done, h.crash
	case "restart":
		w.die()
		w.restart()
	}
}

// neverTooMuch tells when more is recorded of somebody than what he used.
func (w *world) neverTooMuch() {
	used := maps.Clone(w.used)
	for uid, pod := range w.pods {
		used[w.userOf(string(uid))] += Use{Milli: pod.Milli, From: w.began[pod.Name], To: w.policy(time.Now())}.MilliSeconds()
	}
	for user, recorded := range w.recorded() {
		if recorded > used[user] {
			w.t.Fatalf("%d are recorded of %s, and at most %d were used", recorded, user, used[user])
		}
	}
}

// allButLost tells when something is recorded that was not used, or was lost, or
// something is not that was neither.
func (w *world) allButLost() {
	recorded := w.recorded()
	for user, used := range w.used {
		if recorded[user] != used-w.lost[user] {
			w.t.Fatalf("%d are recorded of %s, %d were used, and %d of it were lost when processes died", recorded[user], user, used, w.lost[user])
		}
	}
	for _, record := range w.records() {
		if !strings.HasPrefix(record.Name, lab+"-") || record.Status.GPUMilliHours < 0 {
			w.t.Fatalf("record %s: %+v", record.Name, record.Status)
		}
	}
}
