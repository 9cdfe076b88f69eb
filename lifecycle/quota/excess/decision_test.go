// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

var testStart = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// newTestPod returns a pod that was created some seconds after testStart.
func newTestPod(name string, second int, milli workload.Milli) *podcache.Pod {
	return &podcache.Pod{Namespace: "lab", Name: name, CreatedAt: testStart.Add(time.Duration(second) * time.Second), Milli: milli}
}

func names(pods []*podcache.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return strings.Join(all, " ")
}

// testNow is the time of decisions.
var testNow = testStart.Add(2 * time.Minute)

// deleting returns the pod with a grace period that ends some seconds after testNow.
func deleting(pod *podcache.Pod, seconds int) *podcache.Pod {
	pod.Deleting, pod.GraceEndsAt = true, testNow.Add(time.Duration(seconds)*time.Second)
	return pod
}

// Guards invariant 3 of the design: what exceeds a limit is ended, the newest first. A pod that terminates
// holds its GPUs until its grace period ends.
func TestDecide(t *testing.T) {
	limit := Limit{Milli: 2000, Since: testStart}
	tests := map[string]struct {
		pods   []*podcache.Pod
		excess workload.Milli
		end    string
	}{
		"no pods":              {},
		"exactly the limit":    {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("b", 2, 1000)}},
		"the newest":           {pods: []*podcache.Pod{newTestPod("c", 3, 1000), newTestPod("a", 1, 1000), newTestPod("b", 2, 1000)}, excess: 1000, end: "c"},
		"by name in a second":  {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("c", 1, 1000), newTestPod("b", 1, 1000)}, excess: 1000, end: "c"},
		"several":              {pods: []*podcache.Pod{newTestPod("a", 1, 1500), newTestPod("b", 2, 1000), newTestPod("c", 3, 1000)}, excess: 1500, end: "c b"},
		"a small one has room": {pods: []*podcache.Pod{newTestPod("a", 1, 1500), newTestPod("b", 2, 1000), newTestPod("c", 3, 500)}, excess: 1000, end: "b"},
		"a deleted one holds":  {pods: []*podcache.Pod{deleting(newTestPod("a", 1, 1000), 20), newTestPod("b", 2, 1000), newTestPod("c", 3, 1000)}, excess: 1000, end: "c"},
		"its grace has ended":  {pods: []*podcache.Pod{deleting(newTestPod("a", 1, 1000), 0), newTestPod("b", 2, 1000), newTestPod("c", 3, 1000)}},
		"an old deleted one":   {pods: []*podcache.Pod{deleting(newTestPod("a", -9, 1000), 20), newTestPod("b", 2, 1000), newTestPod("c", 3, 1000)}, excess: 1000, end: "c"},
		"a deleted newest":     {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("b", 2, 1000), deleting(newTestPod("c", 3, 1000), 20)}, excess: 1000},
		"and one more":         {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("b", 2, 1500), deleting(newTestPod("c", 3, 1000), 20)}, excess: 1500, end: "b"},
		"deleted when new":     {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("b", 2, 1000), deleting(newTestPod("c", 61, 1000), 20)}, excess: 1000, end: "c"},
		"ended when new":       {pods: []*podcache.Pod{newTestPod("a", 1, 1000), newTestPod("b", 2, 1000), deleting(newTestPod("c", 61, 1000), 1)}, excess: 1000},
		"older than the limit": {pods: []*podcache.Pod{newTestPod("a", -9, 1000), newTestPod("b", -1, 1000), newTestPod("c", 0, 1000)}, excess: 1000},
		"older ones hold more": {pods: []*podcache.Pod{newTestPod("a", -9, 3000), newTestPod("b", 1, 1000)}, excess: 2000, end: "b"},
		"without quota":        {pods: []*podcache.Pod{newTestPod("a", 1, 2500), newTestPod("b", 2, 0)}, excess: 500, end: "a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if d := Decide(tc.pods, 0, limit, testNow); d.Excess != tc.excess || names(d.End) != tc.end {
				t.Errorf("excess %d, ends %q; want %d, %q", d.Excess, names(d.End), tc.excess, tc.end)
			}
		})
	}
}

// Guards invariants 3 and 12 of the design, for random pods and limits: a sum within the limit ends
// nothing; otherwise the rest is within the limit or older than it; no ended pod would fit beside the
// rest; and for each pod that stays, the older ones that are ended would not have fit either way. Pods
// that terminate are counted and chosen like the others, but not ended again, and those whose grace period
// has ended count no more.
func TestDecideProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 9))
	for round := range 20_000 {
		limit := Limit{Milli: workload.Milli(random.IntN(40)) * 125, Since: testStart.Add(time.Duration(random.IntN(6)) * time.Second)}
		var pods []*podcache.Pod
		for i := range random.IntN(12) {
			pods = append(pods, newTestPod(strconv.Itoa(i), random.IntN(12), workload.Milli(random.IntN(9))*125))
		}
		d := Decide(pods, 0, limit, testNow)
		var held, left, old workload.Milli
		for _, pod := range pods {
			held += pod.Milli
			if !slices.Contains(d.End, pod) {
				left += pod.Milli
				if !pod.CreatedAt.After(limit.Since) {
					old += pod.Milli
				}
			}
		}
		fail := func(what string) {
			t.Fatalf("round %d: %s: of %d held, limit %d since %s, ended %q", round, what, held, limit.Milli, limit.Since, names(d.End))
		}
		switch {
		case held <= limit.Milli && (len(d.End) > 0 || d.Excess != 0):
			fail("ended pods within the limit")
		case left > limit.Milli && left > old:
			fail("newer pods stay above the limit")
		case !slices.IsSortedFunc(d.End, newestFirst):
			fail("not the newest first")
		}
		for _, pod := range d.End {
			if !pod.CreatedAt.After(limit.Since) || pod.Milli == 0 {
				fail("ended a pod that is older than the limit, or without quota")
			}
			if left+pod.Milli <= limit.Milli {
				fail("ended more than needed")
			}
		}
		// The ended ones and the newer ones that stay are together the fewest newest.
		if n := len(d.End); n > 0 {
			var younger workload.Milli
			for _, pod := range pods {
				if newestFirst(pod, d.End[n-1]) < 0 {
					younger += pod.Milli
				}
			}
			if held-younger <= limit.Milli {
				fail("ended an older pod although the newer ones suffice")
			}
		}
		for _, pod := range pods {
			if random.IntN(3) == 0 {
				deleting(pod, 1+random.IntN(3600))
			}
		}
		gone := deleting(newTestPod("gone", random.IntN(12), 1000), -random.IntN(9))
		terminating := Decide(append(slices.Clone(pods), gone), 0, limit, testNow)
		end := slices.DeleteFunc(slices.Clone(d.End), func(pod *podcache.Pod) bool { return pod.Deleting })
		if terminating.Held != held || !slices.Equal(terminating.End, end) || terminating.Terminating != (len(end) < len(d.End)) {
			fail(fmt.Sprintf("with pods that terminate, held %d and ended %q", terminating.Held, names(terminating.End)))
		}
	}
}

// A limit that is lowered ends no running work. Guards invariant 3 of the design.
func TestLimitsInForce(t *testing.T) {
	all, now := limits{}, testStart
	later := func() time.Time { now = now.Add(time.Minute); return now }
	first := all.observe("q", 4000, now)
	if want := testStart.Add(limitSettleTime); !first.Since.Equal(want) {
		t.Errorf("a new limit is in force since %s, want %s", first.Since, want)
	}
	if same := all.observe("q", 4000, later()); same.Milli != first.Milli || !same.Since.Equal(first.Since) {
		t.Errorf("an unchanged limit: %+v, want %+v", same, first)
	}
	raised := all.observe("q", 6000, later())
	if raised.Milli != 6000 || !raised.Since.Equal(first.Since) {
		t.Errorf("a raised limit: %+v", raised)
	}
	lowered := all.observe("q", 5000, later())
	if lowered.Milli != 5000 || !lowered.Since.Equal(now.Add(limitSettleTime)) {
		t.Errorf("a lowered limit: %+v", lowered)
	}
}

// A pod of an excess that was just admitted frees its GPU at once; work that ran for a while can end
// in its own way. Guards invariant 3 of the design.
func TestGracePeriod(t *testing.T) {
	pod := newTestPod("a", 0, 1000)
	if grace := gracePeriod(pod, testStart.Add(59*time.Second)); grace == nil || *grace != 1 {
		t.Errorf("a new pod has %v, want a second", grace)
	}
	if grace := gracePeriod(pod, testStart.Add(time.Minute)); grace != nil {
		t.Errorf("an older pod has %d s, want its own", *grace)
	}
}
