// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
)

// steppedClock is a policy clock that stands still until a test steps it.
type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time                      { return c.now }
func (*steppedClock) FromReal(t time.Time) time.Time        { return t }
func (c *steppedClock) RealUntil(t time.Time) time.Duration { return max(0, t.Sub(c.now)) }

// A Workload that holds quota without pods gives it back after its start timeout, so that a user's own controller
// cannot keep GPUs from others. Guards invariants 4 and 12 of the design.
func TestUnusedReservationIsGivenBack(t *testing.T) {
	timeout := period.MustParseDuration("30m")
	reserved := newKueueWorkload("job-train", 2, 0, "", ownerReference("batch/v1", "Job", "train"))
	reserved.Status.Conditions[0].Status = metav1.ConditionTrue
	reserved.Status.Conditions = append(reserved.Status.Conditions, metav1.Condition{Type: kueueAdmitted, Status: metav1.ConditionTrue})
	with := func(change func(*kueueWorkload)) kueueWorkload {
		w := *reserved.DeepCopyObject().(*kueueWorkload) //nolint:forcetypeassert // it is one
		change(&w)
		return w
	}
	set := ownerReference("jobset.x-k8s.io/v1alpha2", "JobSet", "train")
	ofSet := with(func(w *kueueWorkload) { w.OwnerReferences = []metav1.OwnerReference{set} })
	for name, tc := range map[string]struct {
		workload  kueueWorkload
		pods      fakePods
		clocks    clocksByController
		limits    v1alpha1.WorkloadLimits
		givesBack bool
	}{
		"without pods":                 {workload: reserved, givesBack: true},
		"with the pods of another":     {workload: reserved, pods: fakePods{newGPUPod("whole", 1000, withController("p", "Job", "other"))}, clocks: clocksByController{"other": "job-other"}, givesBack: true},
		"with pods":                    {workload: reserved, pods: fakePods{newGPUPod("whole", 1000, withController("p", "Job", "train"))}, clocks: clocksByController{"train": "c"}},
		"with pods of its Jobs":        {workload: ofSet, pods: fakePods{newGPUPod("whole", 1000, withController("p", "Job", "train-a-0"))}, clocks: clocksByController{"train-a-0": v1alpha1.WorkloadClockName("jobset.x-k8s.io", "JobSet", "train")}},
		"with unknown pods":            {workload: reserved, pods: fakePods{newGPUPod("whole", 1000, withController("p", "Job", "new"))}},
		"with a check that is pending": {workload: with(func(w *kueueWorkload) { w.Status.Conditions[1].Status = metav1.ConditionFalse })},
		"of a bare pod":                {workload: with(func(w *kueueWorkload) { w.OwnerReferences = []metav1.OwnerReference{ownerReference("v1", "Pod", "p")} })},
		"not reserved":                 {workload: with(func(w *kueueWorkload) { w.Status.Conditions = nil })},
		"finished":                     {workload: with(func(w *kueueWorkload) { w.Status.Conditions[1].Type = kueueFinished })},
		"inactive":                     {workload: with(func(w *kueueWorkload) { w.Spec.Active = new(bool) })},
		"without GPUs":                 {workload: with(func(w *kueueWorkload) { w.charge = 0 })},
		"in a dry run":                 {workload: reserved, limits: v1alpha1.WorkloadLimits{DryRun: new(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newQueueTestEnv(t, tc.workload)
			clock := &steppedClock{now: noonPlus(0)}
			g.Clock, g.pods = clock, append(fakePods(nil), tc.pods...)
			if g.Clocks = tc.clocks; tc.clocks == nil {
				g.Clocks = clocksByController{}
			}
			tc.limits.StartTimeout = &timeout
			department := &v1alpha1.Department{
				ObjectMeta: metav1.ObjectMeta{Name: "students"},
				Spec:       v1alpha1.DepartmentSpec{Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": tc.limits}},
			}
			if err := g.client.Create(t.Context(), department); err != nil {
				t.Fatal(err)
			}
			var events []string
			deactivated := 0
			for minutes := range 62 {
				clock.now = noonPlus(60 * minutes)
				wrote, _ := g.reconcileOnce(t)
				for _, write := range wrote {
					if write != "patch Workload job-train" {
						continue
					}
					if minutes != 30 && minutes != 61 { // the reader does not show the change, so it happens again
						t.Errorf("deactivated after %d minutes", minutes)
					}
					deactivated++
				}
				for _, event := range g.recordedEvents() {
					if strings.Contains(event, reasonUnused) {
						events = append(events, event)
					}
				}
			}
			if (deactivated > 0) != tc.givesBack || (len(events) > 0) != tc.givesBack {
				t.Errorf("deactivated %d times, with %q; want %v", deactivated, events, tc.givesBack)
			}
		})
	}
}

// A Workload that was put back is queued again after its delay, also by another process, but not one that its user deactivated or
// that Sluice stopped.
func TestPutBackIsQueuedAgain(t *testing.T) {
	put := func(annotations map[string]string) kueueWorkload {
		w := newKueueWorkload("job-train", 2, 0, "", ownerReference("batch/v1", "Job", "train"))
		w.Spec.Active, w.Annotations = new(bool), annotations
		return w
	}
	record := workloadkind.PutBack{Times: 2, Until: noonPlus(600)}.String()
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"put back":                {map[string]string{v1alpha1.AnnotationPutBack: record}, true},
		"deactivated by its user": {map[string]string{v1alpha1.AnnotationPutBack: "2"}, false},
		"never put back":          {nil, false},
		"stopped by Sluice":       {map[string]string{v1alpha1.AnnotationPutBack: record, v1alpha1.AnnotationStoppedUntil: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newQueueTestEnv(t, put(tc.annotations))
			clock := &steppedClock{now: noonPlus(599)}
			g.Clock = clock
			if wrote, _ := g.reconcileOnce(t); slices.Contains(wrote, "patch Workload job-train") {
				t.Errorf("before its time: wrote %v", wrote)
			}
			clock.now = noonPlus(600)
			if wrote, _ := g.reconcileOnce(t); slices.Contains(wrote, "patch Workload job-train") != tc.want {
				t.Errorf("at its time: wrote %v", wrote)
			}
		})
	}
}

// What Kueue reserved for workloads without pods is allocated, and so is what admitted pods without a node hold.
func TestReservedIsAllocated(t *testing.T) {
	project := newThesisProject()
	charges := SumPodCharges(slices.Values([]*podcache.Pod{
		newGPUPod("dgx", 1000, func(p *podcache.Pod) { p.Node, p.Admitted = "", true }),
		newGPUPod("dgx", 2000, withKueueHold),
	}), project.Name)
	reserved := sumReserved([]kueueWorkload{newKueueWorkload("job-train", 4, 0, "")})
	got := DesiredStatus(project, ObservedState{Charges: charges, Reserved: reserved}, metav1.Now())
	if allocated, pending := got.GPU.Allocated.String(), got.GPU.Pending.String(); allocated != "5" || pending != "2" {
		t.Errorf("allocated %s, pending %s; want 5 and 2", allocated, pending)
	}
}

// A pod group whose members were all deleted before they had a node releases its quota; one with another member does not.
func TestDeletedGroupReleasesItsQuota(t *testing.T) {
	group := newKueueWorkload("team", 2, 0, "", ownerReference("v1", "Pod", "a"), ownerReference("v1", "Pod", "b"))
	group.Status.Conditions[0].Status = metav1.ConditionTrue
	member := func(uid string, change ...func(*podcache.Pod)) *podcache.Pod {
		return newGPUPod("whole", 1000, append([]func(*podcache.Pod){withController(uid, "", ""), withoutNode}, change...)...)
	}
	bound := func(p *podcache.Pod) { p.Node = "dgx-1" }
	for name, tc := range map[string]struct {
		pods    fakePods
		want    bool
		evicted bool
	}{
		"all deleted":            {pods: fakePods{member("a", withDeletion), member("b", withDeletion)}, want: true},
		"evicted by Kueue":       {pods: fakePods{member("a", withDeletion), member("b", withDeletion)}, evicted: true},
		"one deleted, one gone":  {pods: fakePods{member("a", withDeletion)}, want: true},
		"one deleted":            {pods: fakePods{member("a", withDeletion), member("b")}},
		"deleted on their nodes": {pods: fakePods{member("a", withDeletion, bound), member("b", withDeletion)}},
		"finished":               {},
	} {
		t.Run(name, func(t *testing.T) {
			group := *group.DeepCopyObject().(*kueueWorkload) //nolint:forcetypeassert // it is one
			if tc.evicted {
				group.Status.Conditions = append(group.Status.Conditions, metav1.Condition{Type: kueueEvicted, Status: metav1.ConditionTrue})
			}
			g, _ := newQueueTestEnv(t, group)
			g.pods, g.Clock = tc.pods, &steppedClock{now: noonPlus(0)}
			if wrote, _ := g.reconcileOnce(t); slices.Contains(wrote, "delete Workload team") != tc.want {
				t.Errorf("wrote %v", wrote)
			}
		})
	}
}
