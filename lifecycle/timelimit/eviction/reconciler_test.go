// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	periods := Periods{Notice: 5 * time.Minute, Budget: 5 * time.Minute}
	for after, want := range map[time.Duration]step{
		-time.Second: stepWait, 0: stepEvict, 5*time.Minute - time.Second: stepEvict, 5 * time.Minute: stepDelete, 48 * time.Hour: stepDelete,
	} {
		now := testTime.Add(after)
		got, next := decide(testTime, now, periods)
		if got != want || !next.After(now) {
			t.Errorf("%s after the deadline: step %d, next %s", after, got, next)
		}
	}
}

func TestEvictsAtDeadline(t *testing.T) {
	f := newFixture(t, newPod("train", "n"), newPod("other", "n"))
	if err := f.r.Announcer.Announce(t.Context(), preempted("train")); err != nil {
		t.Fatal(err)
	}
	f.pass(5*time.Minute - time.Second)
	if f.getPod("train") == nil {
		t.Fatal("evicted before the deadline")
	}
	f.pass(time.Second)
	if f.getPod("train") != nil || f.getPod("other") == nil {
		t.Error("want the announced pod evicted, and no other")
	}
}

func TestBudgetHoldsForAWhile(t *testing.T) {
	for held, want := range map[time.Duration]struct {
		after  time.Duration
		forced bool
	}{
		7 * time.Minute: {7 * time.Minute, false},
		time.Hour:       {10 * time.Minute, true},
	} {
		f := newFixture(t, newPod("train", "n"))
		f.heldUntil["train"] = testTime.Add(held)
		var at time.Time
		f.onEviction = func(_ *corev1.Pod, forced bool) {
			if at = f.now; forced != want.forced {
				t.Errorf("held for %s: forced %t", held, forced)
			}
		}
		if err := f.r.Announcer.Announce(t.Context(), preempted("train")); err != nil {
			t.Fatal(err)
		}
		f.pass(20 * time.Minute)
		if late := at.Sub(testTime) - want.after; late < 0 || late > 11*time.Second {
			t.Errorf("held for %s: evicted at %s", held, at)
		}
		blocked := 0
		for len(f.events.Events) > 0 {
			if strings.Contains(<-f.events.Events, "EvictionBlocked") {
				blocked++
			}
		}
		if blocked != 1 {
			t.Errorf("%d events about the budget", blocked)
		}
	}
}

func TestCheckWithdraws(t *testing.T) {
	f := newFixture(t, newPod("train", "n"))
	var answer string
	var failure error
	f.check = func(context.Context, Announcement) (string, error) { return answer, failure }
	f.restart()
	if err := f.r.Announcer.Announce(t.Context(), preempted("train")); err != nil {
		t.Fatal(err)
	}
	failure = context.DeadlineExceeded
	f.pass(6 * time.Minute)
	if f.getPod("train") == nil {
		t.Fatal("evicted although the check failed")
	}
	answer, failure = "the claimant was deleted", nil
	f.pass(time.Minute)
	if pod := f.getPod("train"); pod == nil || len(pod.Annotations) > 0 {
		t.Errorf("not withdrawn: %v", pod)
	}
}

// Guards: at most two evictions per node and minute, none before its deadline, none of a pod that is not announced, budgets
// hold until the budget period ends, and each announced pod goes in the end.
func TestEvictionHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(t)
		nodes := []string{"n1", "n2"}
		evicted := map[string][]time.Time{}
		deadlines, announcedAt, withdrawn := map[types.UID]time.Time{}, map[types.UID]time.Time{}, map[types.UID]bool{}
		f.onEviction = func(pod *corev1.Pod, forced bool) {
			deadline, announced := deadlines[pod.UID]
			if !announced || withdrawn[pod.UID] || f.now.Before(deadline) || f.now.Before(announcedAt[pod.UID].Add(5*time.Minute)) {
				t.Fatalf("evicted %s at %s; announced %t for %s", pod.Name, f.now, announced, deadline)
			}
			if forced && f.now.Before(deadline.Add(5*time.Minute)) {
				t.Fatalf("the budget of %s was not respected", pod.Name)
			}
			times := append(evicted[pod.Spec.NodeName], f.now)
			if n := len(times); n > 2 && times[n-1].Sub(times[n-3]) < time.Minute {
				t.Fatalf("three evictions on %s within a minute: %v", pod.Spec.NodeName, times[n-3:])
			}
			evicted[pod.Spec.NodeName] = times
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
			pod := newPod(fmt.Sprint("p", i), rapid.SampledFrom(nodes).Draw(t, "node"))
			if rapid.Bool().Draw(t, "slow exit") {
				pod.Finalizers = []string{"example.org/slow"}
			}
			if rapid.Bool().Draw(t, "budget") {
				f.heldUntil[pod.Name] = testTime.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "held")) * time.Minute)
			}
			if err := f.client.Create(context.Background(), pod); err != nil {
				t.Fatal(err)
			}
		}
		names := func() (all []string) {
			for _, pod := range f.listPods() {
				all = append(all, pod.Name)
			}
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"announce": func(t *rapid.T) {
				all := names()
				if len(all) == 0 {
					t.Skip("no pods")
				}
				name := rapid.SampledFrom(all).Draw(t, "name")
				_ = f.r.Announcer.Announce(context.Background(), preempted(name))
				if p, ok := Parse(f.getPod(name)); ok {
					if _, known := announcedAt[p.UID]; !known || withdrawn[p.UID] {
						announcedAt[p.UID] = f.now
					}
					deadlines[p.UID], withdrawn[p.UID] = p.At, false
				}
			},
			"withdraw": func(t *rapid.T) {
				all := names()
				if len(all) == 0 {
					t.Skip("no pods")
				}
				name := rapid.SampledFrom(all).Draw(t, "name")
				_ = f.r.Announcer.Withdraw(context.Background(), preempted(name), "test")
				if pod := f.getPod(name); pod != nil && len(pod.Annotations) == 0 {
					withdrawn[pod.UID] = true
				}
			},
			"pass": func(t *rapid.T) {
				f.pass(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			},
			"restart": func(*rapid.T) { f.restart() },
			"crash": func(t *rapid.T) {
				f.crashAt, f.crashAfterWrite = f.writes+rapid.IntRange(1, 3).Draw(t, "write"), rapid.Bool().Draw(t, "after")
				f.pass(time.Minute)
				f.crashAt = 0
				f.restart()
			},
			"exit": func(t *rapid.T) {
				for _, pod := range f.listPods() {
					if pod.DeletionTimestamp != nil && rapid.Bool().Draw(t, "exits") {
						pod.Finalizers = nil
						if err := f.client.Update(context.Background(), &pod); err != nil {
							t.Fatal(err)
						}
					}
				}
			},
		})
		f.pass(time.Hour)
		for _, pod := range f.listPods() {
			if _, ok := Parse(&pod); ok {
				t.Fatalf("%s is still announced: %v", pod.Name, pod.Annotations)
			}
		}
	})
}

// An internal error of the API server says nothing about budgets: the eviction is retried, and the pod is not deleted
// instead. Only that of several budgets is theirs.
func TestInternalErrorIsNoBudget(t *testing.T) {
	for text, deleted := range map[string]bool{
		"etcdserver: request timed out": false,
		"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.": true,
	} {
		f := newFixture(t, newPod("train", "n"))
		f.evictionErr = apierrors.NewInternalError(errors.New(text))
		if err := f.r.Announcer.Announce(t.Context(), preempted("train")); err != nil {
			t.Fatal(err)
		}
		f.pass(20 * time.Minute)
		if gone := f.getPod("train") == nil; gone != deleted {
			t.Errorf("%s: the pod is deleted: %t, want %t", text, gone, deleted)
		}
		f.evictionErr = nil
		f.pass(time.Minute)
		if f.getPod("train") != nil {
			t.Errorf("%s: not evicted after the API server recovered", text)
		}
	}
}
