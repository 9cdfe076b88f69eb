// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// A training gang counts as one workload: it gives way with all its pods on a GPU rather than the pods of two others, although it
// has run longer. Each of its pods is announced once, for the same claimant, which gets the room. No other pod is announced or
// evicted.
func TestTrainingGangGivesWay(t *testing.T) {
	g := newMIGCluster(t)
	g.allowPreemption(t)
	g.raiseLimits(t)

	half := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMIG("3g.20gb"): resource.MustParse("1")}
	}
	gang := newGPUJob(g.ns, "gang", half)
	gang.Spec.Parallelism, gang.Spec.Completions = ptr.To(int32(2)), ptr.To(int32(2))
	if _, err := g.clientset.BatchV1().Jobs(g.ns).Create(t.Context(), gang, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.waitForRunningCount(t, 2)
	members := g.gangMembers(t)
	placements := g.waitForPlacements(t, 2)
	gpus := map[string]bool{}
	for _, placement := range placements {
		gpu, _, _ := strings.Cut(halfOfGPU(placement), ",")
		gpus[gpu] = true
	}
	if len(members) != 2 || len(gpus) != 1 {
		t.Fatalf("the members %v of the gang have the devices %v, want two of one GPU", members, placements)
	}
	const singles = 14 // the halves of the other seven GPUs
	g.createMIGPods(t, "single", "3g.20gb", singles)
	g.waitForRunningCount(t, 2+singles)
	before := g.waitForPlacements(t, 2+singles)

	g.createInteractivePod(t, "claimant")
	claimant, err := g.clientset.CoreV1().Pods(g.ns).Get(t.Context(), "claimant", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	announced := map[string]string{}
	g.eventuallyAfterRepartition(t, func() error {
		for _, p := range g.listPods(t, g.ns) {
			if p.Annotations[v1alpha1.AnnotationPreemptAt] != "" {
				announced[p.Name] = p.Annotations[v1alpha1.AnnotationPreemptFor]
			}
		}
		if len(announced) < 2 {
			return unexpectedState("two evictions are announced", []any{announced, g.plannerStatus(t)})
		}
		return nil
	})
	g.waitForRunningPod(t, "claimant")
	if claimed := g.waitForPlacements(t, 1+singles)["claimant"]; !strings.Contains(claimed, soleKey(gpus)) {
		t.Errorf("the claimant has the device %s, want one of %s, on which the gang ran", claimed, soleKey(gpus))
	}
	for _, name := range members {
		if announced[name] != string(claimant.UID) {
			t.Errorf("%s of the gang is announced for %q, want the claimant %s", name, announced[name], claimant.UID)
		}
	}
	if events := g.mustKubectl(t, "get", "events", "-n", g.ns); !strings.Contains(events, "the preemption of 2 pods is announced") {
		t.Errorf("no event on the claimant announces the gang:\n%s", events)
	}
	for name, n := range g.preemptionNotices(t) {
		if !slices.Contains(members, name) || n != 1 {
			t.Errorf("%d Notices announce the preemption of %s, want one for each member of %v", n, name, members)
		}
	}
	after := g.waitForPlacements(t, 1+singles)
	for name, placement := range before {
		if strings.HasPrefix(name, "single-") && after[name] != placement {
			t.Errorf("%s had the device %s and has %q", name, placement, after[name])
		}
	}
	job, err := g.clientset.BatchV1().Jobs(g.ns).Get(t.Context(), "gang", metav1.GetOptions{})
	if err != nil || job.Status.Failed != 0 || jobFailed(job) {
		t.Errorf("the eviction counts as a failure of the gang: %+v, %v", job.Status, err)
	}
	var evicted []string
	for _, failure := range g.podFailures() {
		name, reason, _ := strings.Cut(failure, " was evicted")
		if reason == "" || !slices.Contains(members, name) {
			t.Error(failure)
		}
		evicted = append(evicted, name)
	}
	if slices.Sort(evicted); !slices.Equal(evicted, members) {
		t.Errorf("evicted: %v, want %v", evicted, members)
	}
}

func soleKey(set map[string]bool) string {
	for key := range set {
		return key
	}
	return ""
}

// gangMembers returns the names of the pods of the Job gang, sorted.
func (g *migCluster) gangMembers(t *testing.T) (names []string) {
	t.Helper()
	for _, p := range g.listPods(t, g.ns) {
		if p.Labels[batchv1.JobNameLabel] == "gang" {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// preemptionNotices counts the Notices of preemptions by pod.
func (g *migCluster) preemptionNotices(t *testing.T) map[string]int {
	t.Helper()
	var list v1alpha1.NoticeList
	if err := g.adminClient.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range list.Items {
		if spec := &list.Items[i].Spec; spec.Kind == v1alpha1.NoticePreemption {
			counts[spec.Subject.Name]++
		}
	}
	return counts
}

// raiseLimits lets the project request more than the node has: the claimant pends for a MIG profile, not for quota.
func (g *migCluster) raiseLimits(t *testing.T) {
	t.Helper()
	quota := []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "8", "12")}
	for _, object := range []client.Object{
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "cutters"}}, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: g.ns}},
	} {
		g.eventuallyAfterRepartition(t, func() error {
			if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			switch o := object.(type) {
			case *v1alpha1.Department:
				o.Spec.NodePools = quota
			case *v1alpha1.Project:
				o.Spec.NodePools = quota
			}
			return g.adminClient.Update(t.Context(), object)
		})
	}
	g.eventuallyAfterRepartition(t, func() error {
		project := newProject(g.ns)
		if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaApplied); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != project.Generation {
			return unexpectedState("the raised quota is counted", fmt.Sprint(project.Status.Conditions))
		}
		return nil
	})
}
