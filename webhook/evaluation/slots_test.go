// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine/document"
)

// One project that takes all it can get keeps another waiting for no longer than one
// evaluation. Guards invariant 10 of the design.
func TestSlotsAreSharedByProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const evaluation = 200 * time.Millisecond
		slots := NewSlots(2)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() {
				for ctx.Err() == nil {
					if release, err := slots.Acquire(ctx, "greedy"); err == nil {
						time.Sleep(evaluation)
						release()
					}
				}
			})
		}
		longest := time.Duration(0)
		for range 100 {
			started := time.Now()
			release, err := slots.Acquire(ctx, "modest")
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(started))
			time.Sleep(time.Millisecond)
			release()
			time.Sleep(70 * time.Millisecond)
		}
		cancel()
		all.Wait()
		// The first request comes when the greedy project has all slots.
		if longest > evaluation {
			t.Errorf("the other project waited %s, want at most one evaluation", longest)
		}
	})
}

// A project that is alone uses all slots, and while another is active all but one.
func TestLastSlotIsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(2)
		acquire := func(project string) func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			release, err := slots.Acquire(ctx, project)
			if err != nil {
				return nil
			}
			return release
		}
		first, second := acquire("a"), acquire("a")
		if first == nil || second == nil {
			t.Fatal("a project that is alone did not get all slots")
		}
		if acquire("b") != nil {
			t.Fatal("there is a third slot")
		}
		first()
		if acquire("a") != nil {
			t.Error("the last slot went to a project that has one, though another is active")
		}
		other := acquire("b")
		if other == nil {
			t.Fatal("the last slot was not free for another project")
		}
		other()
		second()
		time.Sleep(2 * activePeriod)
		if first, second := acquire("a"), acquire("a"); first == nil || second == nil {
			t.Error("the other project is no longer active, and a slot stays free")
		}
	})
}

func TestSlotsLimitWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(1)
		release, err := slots.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() {
				if _, err := slots.Acquire(ctx, "a"); !errors.Is(err, errNoSlot) {
					t.Errorf("%v, want %v", err, errNoSlot)
				}
			})
		}
		synctest.Wait()
		if _, err := slots.Acquire(ctx, "a"); !errors.Is(err, errTooManyRequests) {
			t.Errorf("%v, want %v", err, errTooManyRequests)
		}
		cancel()
		all.Wait()
		release()
		if len(slots.waiting) != 0 || len(slots.turns) != 0 || len(slots.held) != 0 || slots.free != 1 {
			t.Errorf("after all requests: waiting %v, turns %v, held %v, %d free", slots.waiting, slots.turns, slots.held, slots.free)
		}
	})
}

// Random projects, durations and cancellations never exceed the slots and lose none.
func TestSlotsUnderRandomRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 3
		slots := NewSlots(total)
		var inUse, most atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				project := string(rune('a' + random.IntN(5)))
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(300))*time.Millisecond)
				defer cancel()
				release, err := slots.Acquire(ctx, project)
				if err != nil {
					return
				}
				most.Store(max(most.Load(), inUse.Add(1)))
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				inUse.Add(-1)
				release()
			})
		}
		all.Wait()
		if most.Load() > total || slots.free != total || len(slots.held) != 0 || len(slots.waiting) != 0 || len(slots.turns) != 0 {
			t.Errorf("at most %d in use of %d; at the end %d free, held %v, waiting %v, turns %v",
				most.Load(), total, slots.free, slots.held, slots.waiting, slots.turns)
		}
	})
}

// A controller waits only briefly behind the requests of its own project, so that its workers are free for others. People wait, and so do
// controllers of other projects. Guards invariant 10 of the design.
func TestControllersDoNotWaitBehindTheirProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Evaluator{Slots: NewSlots(1), Timeout: time.Second}
		if _, err := e.Slots.request("greedy"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Slots.request("greedy"); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			user, project string
			wait          time.Duration
		}{
			{"system:serviceaccount:kube-system:job-controller", "greedy", controllerPatience},
			{"system:serviceaccount:kube-system:job-controller", "modest", time.Second},
			{"eve", "greedy", time.Second},
		} {
			review, err := document.Decode([]byte(`{"userInfo": {"username": "` + tc.user + `"}}`))
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, _, err = e.begin(t.Context(), &decision.Request{Review: review, Tenant: &decision.Tenant{Project: tc.project}})
			if took := time.Since(start); !errors.Is(err, errNoSlot) || took != tc.wait {
				t.Errorf("%s of %s waited %s, want %s: %v", tc.user, tc.project, took, tc.wait, err)
			}
		}
	})
}
