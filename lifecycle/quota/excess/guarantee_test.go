// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// in returns a pod of a namespace that was created some seconds after testStart.
func in(namespace, name string, second int, milli workload.Milli) *podcache.Pod {
	pod := newTestPod(name, second, milli)
	pod.Namespace, pod.UID, pod.Node = namespace, types.UID(name), "dgx-1"
	return pod
}

func nonPreemptible(pod *podcache.Pod) *podcache.Pod {
	pod.NonPreemptible = true
	return pod
}

func TestWithinGuarantee(t *testing.T) {
	pods := []*podcache.Pod{
		in("a", "train-1", 1, 1000), in("a", "train-2", 2, 1000), nonPreemptible(in("a", "notebook", 3, 500)), in("a", "small", 4, 125),
	}
	for guaranteed, want := range map[workload.Milli]string{
		0: "", 499: "", 500: "notebook", 1499: "notebook", 1500: "notebook train-1", 2499: "notebook train-1", 2625: "notebook small train-1 train-2",
	} {
		within := withinGuarantee(pods, guaranteed)
		var covered []*podcache.Pod
		for pod := range within {
			covered = append(covered, pod)
		}
		slices.SortFunc(covered, func(a, b *podcache.Pod) int { return cmp.Compare(a.Name, b.Name) })
		if names(covered) != want {
			t.Errorf("a guarantee of %d covers %q, want %q", guaranteed, names(covered), want)
		}
	}
}

// Guards invariant 12 of the design: of a project's own excess, pods within its guarantee stay.
func TestDecideKeepsGuaranteed(t *testing.T) {
	pods := []*podcache.Pod{in("a", "train-1", 1, 1000), in("a", "train-2", 2, 1000), nonPreemptible(in("a", "notebook", 3, 1000))}
	if d := Decide(pods, 1000, Limit{Milli: 2000, Since: testStart}, testNow); names(d.End) != "train-2" {
		t.Errorf("ended %q, want the newest over quota", names(d.End))
	}
}

// Guards invariant 12 of the design: a pod within its project's guarantee is not ended for others; pods over
// quota that were there before are preempted for it, and newer ones have no room.
func TestDecideDepartment(t *testing.T) {
	guarantees := map[string]workload.Milli{"a": 2000, "b": 1000}
	tests := map[string]struct {
		pods                 []*podcache.Pod
		limit                workload.Milli
		since                int
		end, claims, preempt string
	}{
		"within the limit":       {pods: []*podcache.Pod{in("a", "a1", 1, 1000), in("b", "b1", 2, 1000)}, limit: 3000},
		"the newest over quota":  {pods: []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 1000), in("b", "b3", 3, 1000), in("b", "b4", 4, 1000)}, limit: 3000, end: "b4"},
		"a newcomer":             {pods: []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 1000), in("b", "b3", 3, 1000), in("a", "a1", 4, 1000)}, limit: 3000, claims: "a1", preempt: "b3"},
		"half of its request":    {pods: []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 1500), in("a", "a1", 4, 1000)}, limit: 3000, claims: "a1", preempt: "b2"},
		"only what is necessary": {pods: []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 1500), in("b", "b3", 3, 500), in("a", "a1", 4, 1000)}, limit: 3000, claims: "a1", preempt: "b2"},
		"and one over quota":     {pods: []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 2000), in("a", "a1", 3, 1000), in("b", "b3", 4, 500)}, limit: 3000, end: "b3", claims: "a1", preempt: "b2"},
		"not preemptible":        {pods: []*podcache.Pod{in("b", "b1", 1, 1000), nonPreemptible(in("b", "b2", 2, 2000)), in("a", "a1", 3, 1000)}, limit: 3000, claims: "a1", preempt: "b1"},
		"older than the limit":   {pods: []*podcache.Pod{in("b", "b1", 1, 2000), in("b", "b2", 2, 2000)}, since: 2, limit: 3000},
		"a claim beside these":   {pods: []*podcache.Pod{in("b", "b1", 1, 2000), in("b", "b2", 2, 2000), in("a", "a1", 3, 1000)}, since: 2, limit: 3000, claims: "a1", preempt: "b2"},
		"guarantees above it":    {pods: []*podcache.Pod{in("a", "a1", 1, 1000), in("a", "a2", 2, 1000), in("b", "b1", 3, 1000)}, limit: 2500, end: "b1"},
		"its own over quota":     {pods: []*podcache.Pod{in("a", "a1", 1, 2000), in("b", "b1", 2, 1000), nonPreemptible(in("a", "a2", 3, 1000))}, limit: 3000, claims: "a2", preempt: "a1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := DecideDepartment(tc.pods, guarantees, Limit{Milli: tc.limit, Since: testStart.Add(time.Duration(tc.since) * time.Second)})
			var claims []*podcache.Pod
			for _, claim := range d.Claims {
				claims = append(claims, claim.Pod)
			}
			d.preempt(d.Claims, nil)
			if names(d.End) != tc.end || names(claims) != tc.claims || names(d.Preempt) != tc.preempt {
				t.Errorf("ends %q, claims %q, preempts %q; want %q, %q, %q", names(d.End), names(claims), names(d.Preempt), tc.end, tc.claims, tc.preempt)
			}
		})
	}
}

// What is announced stays chosen, while there are others that are newer.
func TestAnnouncedStayChosen(t *testing.T) {
	pods := []*podcache.Pod{in("b", "b1", 1, 1000), in("b", "b2", 2, 1000), in("b", "b3", 3, 1000), in("a", "a1", 4, 1000)}
	d := DecideDepartment(pods, map[string]workload.Milli{"a": 1000}, Limit{Milli: 3000, Since: testStart})
	if d.preempt(d.Claims, map[types.UID]bool{"b2": true}); names(d.Preempt) != "b2" {
		t.Errorf("preempts %q, want the announced one", names(d.Preempt))
	}
}

// The claims of a project's pods are served in rounds: together ten seconds after the first, and then at most
// once in ten minutes. So creating and deleting pods ends no long training.
func TestRounds(t *testing.T) {
	r := rounds{}
	claim := func(namespace, name string, second int) Claim {
		return Claim{in(namespace, name, second, 1000), 1000}
	}
	at := func(second int) time.Time { return testStart.Add(time.Duration(second) * time.Second) }
	check := func(second int, claims []Claim, want string, next time.Duration) {
		t.Helper()
		served, again := r.serve(claims, at(second))
		var pods []*podcache.Pod
		for _, c := range served {
			pods = append(pods, c.Pod)
		}
		got := names(pods)
		if got != want || again != next {
			t.Errorf("after %d s: serves %q, again in %s; want %q, %s", second, got, again, want, next)
		}
	}
	job := []Claim{claim("a", "a1", 0), claim("a", "a2", 5)}
	check(0, job[:1], "", 10*time.Second)
	check(9, job, "", time.Second)
	check(10, job, "a1 a2", 0)
	more := append(slices.Clone(job), claim("a", "a3", 11), claim("b", "b1", 12))
	check(22, more, "a1 a2 b1", 588*time.Second)
	check(609, more[2:3], "", time.Second) // the first two were deleted
	check(610, more[2:3], "a3", 0)
}

// Guards invariant 12 of the design: in random histories of a department, in which pods are created and deleted and
// what is announced ends after its notice, no pod within a guarantee is ended where the guarantees fit the
// limit, and the pods that stay fit the limit once no claim is open. Pods that a project creates and deletes within the
// notice preempt none of another project.
func TestNoHistoryEndsGuaranteed(t *testing.T) {
	const notice = 5 * time.Minute
	random := rand.New(rand.NewPCG(36, 3))
	for history := range 300 {
		namespaces := []string{"a", "b", "c"}
		guarantees := map[string]workload.Milli{}
		limit := Limit{Since: testStart}
		for _, namespace := range namespaces {
			guarantees[namespace] = workload.Milli(random.IntN(5)) * 500
			limit.Milli += guarantees[namespace]
		}
		limit.Milli += workload.Milli(random.IntN(5)) * 500
		r, now := rounds{}, testStart.Add(time.Minute)
		var pods []*podcache.Pod
		announced := map[types.UID]time.Time{}
		for step := range 150 {
			now = now.Add(time.Duration(random.IntN(120)) * time.Second)
			switch random.IntN(4) {
			case 0, 1:
				pod := in(namespaces[random.IntN(3)], fmt.Sprint("p", step), 0, workload.Milli(1+random.IntN(8))*125)
				pod.CreatedAt, pod.NonPreemptible = now, random.IntN(3) == 0
				if held := heldBy(pods, pod.Namespace); held+pod.Milli <= guarantees[pod.Namespace] || !pod.NonPreemptible {
					pods = append(pods, pod)
				}
			case 2:
				if len(pods) > 0 {
					i := random.IntN(len(pods))
					pods = slices.Delete(pods, i, i+1)
				}
			}
			d := DecideDepartment(pods, guarantees, limit)
			served, _ := r.serve(d.Claims, now)
			known := map[types.UID]bool{}
			for uid := range announced {
				known[uid] = true
			}
			d.preempt(served, known)
			end := slices.Clone(d.End)
			for uid := range announced {
				if !slices.ContainsFunc(d.Preempt, func(pod *podcache.Pod) bool { return pod.UID == uid }) {
					delete(announced, uid) // withdrawn
				}
			}
			for _, pod := range d.Preempt {
				if at, known := announced[pod.UID]; !known {
					announced[pod.UID] = now.Add(notice)
				} else if !now.Before(at) {
					end = append(end, pod)
				}
			}
			for _, pod := range end {
				within := withinGuarantee(slices.DeleteFunc(slices.Clone(pods), func(p *podcache.Pod) bool { return p.Namespace != pod.Namespace }), guarantees[pod.Namespace])
				if within[pod] {
					t.Fatalf("history %d, step %d: pod %s is within the guarantee of %s and ends", history, step, pod.Name, pod.Namespace)
				}
			}
			pods = slices.DeleteFunc(pods, func(pod *podcache.Pod) bool { return slices.Contains(end, pod) })
			var held, claimed workload.Milli
			for _, pod := range pods {
				held += pod.Milli
			}
			for _, claim := range d.Claims {
				claimed += claim.Milli
			}
			if held > limit.Milli+claimed {
				t.Fatalf("history %d, step %d: %d are held above the limit of %d, %d of them claimed", history, step, held, limit.Milli, claimed)
			}
		}
	}
}

func heldBy(pods []*podcache.Pod, namespace string) (sum workload.Milli) {
	for _, pod := range pods {
		if pod.Namespace == namespace && pod.NonPreemptible {
			sum += pod.Milli
		}
	}
	return sum
}
