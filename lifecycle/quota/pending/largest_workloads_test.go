// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// clocksByController resolve the clock of a pod by the name of its controller.
type clocksByController map[string]string

func (c clocksByController) ClockOf(pod *podcache.Pod) (types.NamespacedName, bool) {
	name, known := c[pod.Controller.Name]
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}, known
}

func (clocksByController) IsSynced(string) bool { return true }

// unresolvedClocks is what a start knows before it has resolved the workloads.
type unresolvedClocks struct{ clocksByController }

func (unresolvedClocks) IsSynced(string) bool { return false }

// createClock creates the clock of a Job that a user created and that runs since then.
func (g *testEnv) createClock(t *testing.T, job, creator string, since metav1.Time) {
	t.Helper()
	clock := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "job-" + job},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: job}},
		Status:     v1alpha1.WorkloadClockStatus{CreatedBy: creator, RunningSince: &since},
	}
	if err := g.client.Create(t.Context(), clock); err != nil {
		t.Fatal(err)
	}
	g.Clocks.(clocksByController)[job] = clock.Name //nolint:forcetypeassert // it is one
}

// workloads returns the list in the project's status.
func (g *testEnv) workloads(t *testing.T) (list []string) {
	t.Helper()
	project := &v1alpha1.Project{}
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, project); err != nil {
		t.Fatal(err)
	}
	for _, w := range project.Status.Workloads {
		text := fmt.Sprintf("%s %s of %s: %s in %s", w.Kind, w.Name, w.CreatedBy, &w.GPUs, w.NodePool)
		if w.Since != nil {
			text += " since " + w.Since.UTC().Format(time.TimeOnly)
		}
		list = append(list, text)
	}
	if more := project.Status.MoreWorkloads; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return list
}

func ofJob(name string) func(*podcache.Pod) {
	return func(p *podcache.Pod) {
		p.Controller, p.CreatedBy = podcache.Owner{Kind: "Job", Name: name, UID: types.UID(name)}, "system:serviceaccount:kube-system:job-controller"
	}
}

// Protects invariant 11: the status of a project names who uses its quota, and since when.
func TestStatusNamesLargestWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestEnv(t, 1000)
		g.Clocks = clocksByController{}
		g.createClock(t, "train", "anna", metav1.NewTime(noon))
		g.createClock(t, "sweep", "ben", metav1.NewTime(noonPlus(60)))
		g.pods = fakePods{
			newGPUPod("dgx", 500, ofJob("sweep")), newGPUPod("dgx", 4000, ofJob("train")), newGPUPod("dgx", 4000, ofJob("train")),
			newGPUPod("dgx", 1000, ofJob("train"), withoutNode), newGPUPod("old", 250, ofJob("sweep")),
			newGPUPod("old", 125, func(p *podcache.Pod) { p.Name, p.CreatedBy = "notebook", strings.Repeat("x", 5000) }),
			newGPUPod("dgx", 8000, ofJob("train"), withOtherProject),
		}
		g.reconcileOnce(t)
		want := []string{
			"Job train of anna: 8 in dgx since 12:00:00", "Job sweep of ben: 500m in dgx since 12:01:00",
			"Job sweep of ben: 250m in old since 12:01:00", "Pod notebook of " + strings.Repeat("x", 1024) + ": 125m in old",
		}
		if diff := cmp.Diff(want, g.workloads(t)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		if wrote, _ := g.reconcileOnce(t); len(wrote) > 0 {
			t.Errorf("wrote %v although no workload changed", wrote)
		}
		g.pods = nil
		g.reconcileOnce(t)
		if got := g.workloads(t); len(got) > 0 {
			t.Errorf("without pods the status names %v", got)
		}
	})
}

// Protects invariant 11: a start changes the list only once it knows the workloads of all pods, or knows that it will not.
func TestStartKeepsListUntilWorkloadsAreResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestEnv(t, 1000)
		g.Clocks = clocksByController{}
		g.createClock(t, "train", "anna", metav1.NewTime(noon))
		g.pods = fakePods{newGPUPod("dgx", 1000, ofJob("train")), newGPUPod("dgx", 500, ofJob("unreadable"))}
		g.reconcileOnce(t)
		before := g.workloads(t)
		g.initState()
		g.Clocks = unresolvedClocks{}
		if wrote, result := g.reconcileOnce(t); len(wrote) > 0 || result.RequeueAfter == 0 || result.RequeueAfter > listInterval {
			t.Errorf("it wrote %v, again after %s", wrote, result.RequeueAfter)
		}
		if diff := cmp.Diff(before, g.workloads(t)); diff != "" {
			t.Errorf("(-before +after the start)\n%s", diff)
		}
		time.Sleep(resolutionTime)
		g.reconcileOnce(t)
		const creator = "system:serviceaccount:kube-system:job-controller"
		if diff := cmp.Diff([]string{"Job train of " + creator + ": 1 in dgx", "Job unreadable of " + creator + ": 500m in dgx"}, g.workloads(t)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// Protects invariant 11: while a project is being deleted, its status shows the workloads that end.
func TestStatusOfDeletedProjectShowsEndOfWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestEnv(t, 1000)
		g.Clocks = clocksByController{}
		g.pods = fakePods{newGPUPod("dgx", 1000, ofJob("train"))}
		g.reconcileOnce(t)
		project := &v1alpha1.Project{}
		if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, project); err != nil {
			t.Fatal(err)
		}
		project.Finalizers = []string{v1alpha1.FinalizerProject}
		if err := g.client.Update(t.Context(), project); err != nil {
			t.Fatal(err)
		}
		if err := g.client.Delete(t.Context(), project); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		g.reconcileOnce(t)
		if got := g.workloads(t); len(got) != 1 {
			t.Errorf("the status names %v, want the workload that still runs", got)
		}
		g.pods = nil
		g.reconcileOnce(t)
		time.Sleep(10 * time.Second)
		g.reconcileOnce(t)
		if got := g.workloads(t); len(got) > 0 {
			t.Errorf("the status names %v although no pod is left", got)
		}
		if wrote, _ := g.reconcileOnce(t); len(wrote) > 0 {
			t.Errorf("wrote %v although nothing changed", wrote)
		}
	})
}

// The list has ten workloads and the number of the others, and changes at most every five seconds.
func TestListOfWorkloadsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestEnv(t, 1000)
		g.Clocks = clocksByController{}
		for i := range 1000 {
			g.pods = append(g.pods, newGPUPod("dgx", 1000, ofJob(fmt.Sprintf("job-%03d", i))))
		}
		g.reconcileOnce(t)
		first := g.workloads(t)
		if len(first) != 11 || !strings.HasPrefix(first[9], "Job job-009 ") || first[10] != "990 more" {
			t.Fatalf("list %v", first)
		}
		time.Sleep(time.Second)
		g.pods = g.pods[1:]
		if _, result := g.reconcileOnce(t); result.RequeueAfter > 4*time.Second || result.RequeueAfter <= 0 {
			t.Errorf("reconciled again after %s", result.RequeueAfter)
		}
		if diff := cmp.Diff(first, g.workloads(t)); diff != "" {
			t.Errorf("the list changed within a second (-was +is)\n%s", diff)
		}
		time.Sleep(4 * time.Second)
		g.reconcileOnce(t)
		if got := g.workloads(t); !strings.HasPrefix(got[0], "Job job-001 ") || got[10] != "989 more" {
			t.Errorf("list %v", got)
		}
	})
}
