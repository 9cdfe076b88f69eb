// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// A Job that Kueue admitted and whose pod selects a node that no pool has holds its GPUs no longer than its start timeout:
// it is put back twice, with its place in the queue, and stopped the third time. Guards invariant 4 of the design.
func TestUnstartedJobIsPutBack(t *testing.T) {
	c := newPolicyTimeCluster(t, "--scheduler", "kueue")
	const team = "team-a"
	c.waitForGoverned(t, team)
	job := newGPUJob(team, "nowhere", trainsOneGPU, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.org/nowhere": "true"} })
	c.createForTest(t, job)
	w := workload{Object: job, group: "batch", kind: "Job"}
	waitForWorkload := func(what string, met func(*unstructured.Unstructured, workloadkind.PutBack) bool) (record workloadkind.PutBack) {
		t.Helper()
		c.eventuallyAfterStep(t, func() error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
			if err := c.adminClient.List(t.Context(), list, client.InNamespace(team)); err != nil {
				return err
			}
			for i := range list.Items {
				if queued := &list.Items[i]; queued.GetLabels()[workloadkind.LabelKueueJobUID] == string(job.UID) {
					record = workloadkind.ParsePutBack(queued.GetAnnotations()[v1alpha1.AnnotationPutBack])
					if met(queued, record) {
						return nil
					}
				}
			}
			return unexpectedState(what, fmt.Sprint(record))
		})
		return record
	}
	started := func(s *v1alpha1.WorkloadClockStatus) bool { return s.StartingSince != nil && s.Stopped == nil }
	for times := 1; times <= 3; times++ {
		waitForWorkload("it is admitted", func(queued *unstructured.Unstructured, record workloadkind.PutBack) bool {
			return conditionTrue(queued, "Admitted") && record == workloadkind.PutBack{Times: times - 1}
		})
		c.waitForClock(t, w, "starts", started)
		c.eventuallyAfterStep(t, func() error { // the scheduler has its own pace
			var pods corev1.PodList
			if err := c.adminClient.List(t.Context(), &pods, client.InNamespace(team)); err != nil {
				return err
			}
			for i := range pods.Items {
				for _, condition := range pods.Items[i].Status.Conditions {
					if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, "node affinity/selector") {
						t.Log("DEBUG", condition.Message)
						return nil
					}
				}
			}
			return unexpectedState("its pod fits on no node", fmt.Sprint(len(pods.Items), " pods"))
		})
		c.advanceTime(t, 15*time.Minute)
		clock := c.waitForClock(t, w, "has a deadline", func(s *v1alpha1.WorkloadClockStatus) bool { return started(s) && s.Deadline != nil })
		c.advanceTimeTo(t, clock.Deadline.At.Time)
		if times == 3 {
			break
		}
		record := waitForWorkload("it is put back", func(queued *unstructured.Unstructured, record workloadkind.PutBack) bool {
			active, _, _ := unstructured.NestedBool(queued.Object, "spec", "active")
			return !active && !conditionTrue(queued, "QuotaReserved") && record.Times == times
		})
		c.restartLifecycle(t, func() {})
		c.advanceTimeTo(t, record.Until)
	}
	stopped := c.waitForClock(t, w, "is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
	if stopped.Stopped.Reason != v1alpha1.EndStartTimeout {
		t.Errorf("stopped: %+v", stopped.Stopped)
	}
}
