// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// newKAIQueue returns a Queue with allocated resources, as pkg/queuecontroller of KAI-Scheduler v0.17.0 writes them;
// none for nil.
func newKAIQueue(name string, allocated map[string]any) *unstructured.Unstructured {
	queue := &unstructured.Unstructured{Object: map[string]any{}}
	queue.SetGroupVersionKind(kaigroup.QueueKind)
	queue.SetName(name)
	if allocated != nil {
		queue.Object["status"] = map[string]any{"allocated": allocated}
	}
	return queue
}

func TestQueueUsage(t *testing.T) {
	pool := &input.NodePool{Products: []input.GPUModel{{Profiles: []input.MIGProfile{{Resource: "nvidia.com/mig-3g.20gb", QuotaCharge: 500}}}}}
	for name, tc := range map[string]struct {
		allocated map[string]any
		want      int64
		known     bool
	}{
		"no status":          {nil, 0, false},
		"nothing allocated":  {map[string]any{}, 0, true},
		"GPUs and fractions": {map[string]any{"cpu": "7500m", "memory": "2", "nvidia.com/gpu": "2130m"}, 2130, true},
		"MIG instances":      {map[string]any{"nvidia.com/mig-3g.20gb": "3"}, 1500, true},
		"an unknown profile": {map[string]any{"nvidia.com/mig-9g.90gb": "1", "nvidia.com/gpu": "1"}, 0, false},
		"no amount":          {map[string]any{"nvidia.com/gpu": "many"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, known := queueUsage(newKAIQueue("q", tc.allocated), pool); int64(got) != tc.want || known != tc.known {
				t.Errorf("got %d, %t; want %d, %t", got, known, tc.want, tc.known)
			}
		})
	}
}

// Protects invariant 11: where KAI-Scheduler counts other usage than the bound pods have, the project says so, and not
// during the seconds in which the scheduler's count lags.
func TestUsageDiffersFromQueue(t *testing.T) {
	g, _ := newKAIEnv(t)
	g.pods = fakePods{newGPUPod("a", 1000), newGPUPod("a", 130), newGPUPod("mig", 500)}
	queue := newKAIQueue("thesis.a", map[string]any{"nvidia.com/gpu": "3"})
	if err := g.client.Create(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	var project v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &project); err != nil {
		t.Fatal(err)
	}
	compare := func(at time.Duration, want string, wantWait time.Duration) {
		t.Helper()
		difference, wait, err := g.compareQueues(t.Context(), &project, noon.Add(at))
		if err != nil || difference != want || wait != wantWait {
			t.Errorf("after %s: %q, again in %s, %v; want %q, %s", at, difference, wait, err, want, wantWait)
		}
		project.Status = DesiredStatus(&project, ObservedState{UsageDifference: difference}, metav1.NewTime(noon.Add(at)))
	}
	const differs = "queue thesis.a of KAI-Scheduler counts 3 GPUs, and the bound pods hold 1.13 GPUs of node pool a"
	compare(0, "", time.Minute)
	compare(59*time.Second, "", time.Second)
	if meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUsageDiffers) != nil {
		t.Error("the condition is set before the scheduler had a minute")
	}
	compare(time.Minute, differs, time.Minute)
	condition := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUsageDiffers)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonSchedulerCountDiffers || !strings.HasPrefix(condition.Message, differs) {
		t.Errorf("condition = %+v", condition)
	}
	compare(90*time.Second, differs, 30*time.Second)

	// KAI-Scheduler rounds: 0.13 of a GPU can be 0.125 for Sluice.
	queue.Object["status"] = map[string]any{"allocated": map[string]any{"nvidia.com/gpu": "1125m"}}
	if err := g.client.Update(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	compare(2*time.Minute, "", 0)
	if !meta.IsStatusConditionFalse(project.Status.Conditions, v1alpha1.ConditionUsageDiffers) {
		t.Errorf("conditions = %+v", project.Status.Conditions)
	}
	compare(time.Hour, "", 0)
	g.pods = append(g.pods, newGPUPod("a", 1000))
	compare(time.Hour, "", time.Minute)
	compare(time.Hour+time.Minute, "queue thesis.a of KAI-Scheduler counts 1.125 GPUs, and the bound pods hold 2.13 GPUs of node pool a", time.Minute)

	// Its PodGroup is gone with its Job, and the pod has its grace period.
	g.pods = fakePods{newGPUPod("a", 1000), newGPUPod("a", 130), newGPUPod("a", 1000, withDeletion)}
	compare(2*time.Hour, "queue thesis.a of KAI-Scheduler counts 1.125 GPUs, and the bound pods hold 2.13 GPUs of node pool a", time.Minute)
	compare(2*time.Hour+time.Minute, "", 0)
}

// Protects invariant 11: KAI-Scheduler stops counting pods when their PodGroup is deleted with their Job, while they
// still have their grace period. This is not another usage; more than the bound pods hold is.
func TestUsageOfTerminatingPodsMayDiffer(t *testing.T) {
	g, _ := newKAIEnv(t)
	g.pods = fakePods{newGPUPod("a", 1000), newGPUPod("a", 2000, withDeletion)}
	var project v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &project); err != nil {
		t.Fatal(err)
	}
	queue := newKAIQueue("thesis.a", map[string]any{})
	if err := g.client.Create(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for counted, want := range map[string]string{
		"0": "queue thesis.a of KAI-Scheduler counts no GPUs, and the bound pods hold 3 GPUs of node pool a",
		"1": "", "3": "",
		"4": "queue thesis.a of KAI-Scheduler counts 4 GPUs, and the bound pods hold 3 GPUs of node pool a",
	} {
		queue.Object["status"] = map[string]any{"allocated": map[string]any{"nvidia.com/gpu": counted}}
		if err := g.client.Update(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		clear(g.queueChecks)
		for _, at := range []time.Duration{0, time.Minute} {
			difference, _, err := g.compareQueues(t.Context(), &project, noon.Add(at))
			if last := at > 0; err != nil || last && difference != want {
				t.Errorf("%s counted: %q, %v; want %q", counted, difference, err, want)
			}
		}
	}
}
