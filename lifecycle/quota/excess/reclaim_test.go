// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// fakeAnnouncer keeps announcements as the pods would.
type fakeAnnouncer struct {
	announced []*eviction.AnnouncedPod
	messages  []string
	refused   error
}

func (f *fakeAnnouncer) Announce(_ context.Context, a eviction.Announcement) error {
	if f.refused != nil {
		return f.refused
	}
	if !slices.ContainsFunc(f.announced, func(p *eviction.AnnouncedPod) bool { return p.UID == a.UID }) {
		f.announced, f.messages = append(f.announced, &eviction.AnnouncedPod{Announcement: a}), append(f.messages, a.Message)
	}
	return nil
}

func (f *fakeAnnouncer) Withdraw(_ context.Context, a eviction.Announcement, _ string) error {
	f.announced = slices.DeleteFunc(f.announced, func(p *eviction.AnnouncedPod) bool { return p.UID == a.UID })
	return nil
}

func (f *fakeAnnouncer) Values() []*eviction.AnnouncedPod { return slices.Clone(f.announced) }
func (f *fakeAnnouncer) OnChange(func())                  {}

func (f *fakeAnnouncer) names() string {
	var all []string
	for _, p := range f.announced {
		all = append(all, p.Pod.Name)
	}
	return strings.Join(all, " ")
}

// guarantee gives project thesis a guarantee in node pool dgx.
func (e *testEnv) guarantee(t *testing.T, gpus string) {
	t.Helper()
	var thesis v1alpha1.Project
	if err := e.Client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &thesis); err != nil {
		t.Fatal(err)
	}
	thesis.Spec.NodePools[0].GPU.Guaranteed = resource.MustParse(gpus)
	if err := e.Client.Update(t.Context(), &thesis); err != nil {
		t.Fatal(err)
	}
}

// fullDepartment returns a department that project course fills beyond its guarantee, and a pod of project thesis
// within its own that was created later.
func fullDepartment(t *testing.T) *testEnv {
	t.Helper()
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	e.guarantee(t, "1")
	e.departments["students"] = stateOfYears()
	e.add(-90, "a", "b")
	e.add(-80, "c", "mine")
	for _, pod := range e.pods[:3] {
		pod.Namespace, pod.Project = "lab", "course"
	}
	e.pods[3].CreatedAt = e.pods[3].CreatedAt.Add(time.Second)
	for _, pod := range e.pods {
		pod.Node = "dgx-1"
	}
	return e
}

// stateOfYears is the state of a department whose limit and projects are a year old.
func stateOfYears() departmentState {
	since := testStart.AddDate(-1, 0, 0)
	return departmentState{limits: limits{"students/dgx": {Milli: 3000, Since: since}}, members: map[types.UID]time.Time{"": since, "course": since}}
}

// Guards invariant 12 of the design: what is guaranteed is admitted, and the department is over its limit until the pods
// over quota have had their announcement, which is withdrawn if the newcomer ends first.
func TestGuaranteeIsReclaimed(t *testing.T) {
	e := fullDepartment(t)
	for range 2 {
		c := e.reconcileDepartmentOnce(t)
		want := "department students held 4 GPUs of node pool dgx, 1 GPU more than its limit of 3 GPUs, for work within a guarantee (pod work/mine): " +
			"it stays above the limit until the pods over quota that are announced to be preempted have ended: pod lab/c"
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonGuaranteeClaimed || c.Message != want {
			t.Fatalf("condition %+v, want %s", c, want)
		}
	}
	want := []string{"project thesis claims its guarantee in node pool dgx, department students has no room within its limit of 3 GPUs, " +
		"and project course is over its own guarantee of no GPUs"}
	if got := e.announcements; got.names() != "c" || !slices.Equal(got.messages, want) || len(e.evicted) > 0 {
		t.Fatalf("announced %s with %q, evicted %v", got.names(), got.messages, e.evicted)
	}
	a := e.announcements.announced[0].Announcement
	if a.Reason != v1alpha1.EndQuotaReclaimed || a.Claimant != "mine" {
		t.Errorf("announced %+v", a)
	}
	if why, err := e.Check(t.Context(), a); why != "" || err != nil {
		t.Errorf("the check withdraws it: %q, %v", why, err)
	}
	e.pods = e.pods[:3] // the newcomer ends
	if c := e.reconcileDepartmentOnce(t); c.Status != metav1.ConditionFalse || len(e.announcements.announced) > 0 {
		t.Errorf("without the newcomer: %+v, announced %s", c, e.announcements.names())
	}
	if why, err := e.Check(t.Context(), a); why != roomFound || err != nil {
		t.Errorf("the check keeps it: %q, %v", why, err)
	}
}

// Guards invariants 5 and 12 of the design: after a start of the process no announcement is withdrawn before the first pass, and
// that pass chooses the same pods.
func TestReclaimAfterRestart(t *testing.T) {
	e := fullDepartment(t)
	e.reconcileDepartmentOnce(t)
	a := e.announcements.announced[0].Announcement
	e.initState(&e.pods)
	if why, err := e.Check(t.Context(), a); why != "" || err == nil {
		t.Errorf("before the first pass: %q, %v", why, err)
	}
	e.departments["students"] = stateOfYears()
	e.add(-70, "newer")
	e.pods[4].Namespace, e.pods[4].Project, e.pods[4].Node = "lab", "course", "dgx-1"
	if e.reconcileDepartmentOnce(t); e.announcements.names() != "c" || !slices.Equal(e.evicted, []string{"newer"}) {
		t.Errorf("announced %s, ended %v; want c as before, and the one that had no room", e.announcements.names(), e.evicted)
	}
}

// A pod without a node can have no announcement and loses nothing: it ends at once.
func TestReclaimFromPending(t *testing.T) {
	e := fullDepartment(t)
	e.pods[2].Node = ""
	if c := e.reconcileDepartmentOnce(t); len(e.announcements.announced) > 0 || !slices.Equal(e.evicted, []string{"c"}) || c.Reason != v1alpha1.ReasonNewestPodsEnded {
		t.Errorf("announced %s, ended %v, %+v", e.announcements.names(), e.evicted, c)
	}
}

// Guards invariant 5 of the design: an announcement that failed is repeated.
func TestAnnouncementIsRepeated(t *testing.T) {
	e := fullDepartment(t)
	e.announcements.refused = errors.New("the API server is away")
	name := types.NamespacedName{Name: "students"}
	if _, err := e.reconcileDepartment(t.Context(), requestFor(name.Name)[0]); !errors.Is(err, e.announcements.refused) {
		t.Fatalf("error %v", err)
	}
	e.announcements.refused = nil
	if e.reconcileDepartmentOnce(t); e.announcements.names() != "c" {
		t.Errorf("announced %q", e.announcements.names())
	}
}

// A waiting claim has a condition and another pass.
func TestClaimWaitsForItsRound(t *testing.T) {
	e := fullDepartment(t)
	e.pods[3].CreatedAt = time.Now()
	result, err := e.reconcileDepartment(t.Context(), requestFor("students")[0])
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > roundDelay || len(e.announcements.announced) > 0 {
		t.Errorf("%+v, %v, announced %s", result, err, e.announcements.names())
	}
	if c := e.reconcileDepartmentOnce(t); c.Reason != v1alpha1.ReasonGuaranteeClaimed || !strings.Contains(c.Message, "in the next round") {
		t.Errorf("condition %+v", c)
	}
}
