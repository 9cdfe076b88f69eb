// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func addLimit(c *corev1.Container, name corev1.ResourceName, n int64) {
	amount := corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
	c.Resources = corev1.ResourceRequirements{Limits: amount, Requests: amount}
}

func TestParsePendingPod(t *testing.T) {
	now := metav1.NewTime(startTime)
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []instanceRequest
		// schedulable: no instance is created for the pod, which may be in its binding cycle.
		schedulable bool
	}{
		"a pending pod":       {change: func(*corev1.Pod) {}, want: []instanceRequest{{"3g.20gb", 1}}},
		"a bound pod":         {change: func(p *corev1.Pod) { p.Spec.NodeName = "n1" }},
		"a pod being deleted": {change: func(p *corev1.Pod) { p.DeletionTimestamp = &now }},
		"a scheduling gate of Kueue": {change: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		}},
		"a failed pod": {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"no scheduler has tried": {
			change: func(p *corev1.Pod) { p.Status.Conditions = nil }, want: []instanceRequest{{"3g.20gb", 1}}, schedulable: true,
		},
		"a scheduler error": {
			change: func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError },
			want:   []instanceRequest{{"3g.20gb", 1}}, schedulable: true,
		},
		"KAI's queue over quota": {change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Message = "NonPreemptibleOverQuota: Non-preemptible workload is over quota"
		}},
		"whole GPUs": {change: func(p *corev1.Pod) { addLimit(&p.Spec.Containers[0], "nvidia.com/gpu", 1) }},
		"with attributes": {
			change: func(p *corev1.Pod) { addLimit(&p.Spec.Containers[0], "nvidia.com/mig-1g.5gb.me", 2) },
			want:   []instanceRequest{{"1g.5gb+me", 2}},
		},
		"two containers": {change: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
		}, want: []instanceRequest{{"3g.20gb", 2}}},
		"an init container beside a sidecar": {change: func(p *corev1.Pod) {
			sidecar, initial := p.Spec.Containers[0].DeepCopy(), p.Spec.Containers[0].DeepCopy()
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			addLimit(initial, "nvidia.com/mig-3g.20gb", 3)
			p.Spec.InitContainers = []corev1.Container{*sidecar, *initial}
		}, want: []instanceRequest{{"3g.20gb", 4}}},
		"another scheduler's message": {
			change: func(p *corev1.Pod) { p.Status.Conditions[0].Message = "no" }, want: []instanceRequest{{"3g.20gb", 1}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []instanceRequest
			w, ok := parsePendingPod(newPendingPodObject(tt.change))
			if ok {
				got = w.instanceRequests
				if w.isUnschedulable() == tt.schedulable {
					t.Errorf("isUnschedulable is %v", w.isUnschedulable())
				}
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(instanceRequest{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestPodGroupOverQuota(t *testing.T) {
	group := func(status, reason string) map[string]any {
		return map[string]any{"status": map[string]any{"schedulingConditions": []any{
			map[string]any{"status": status, "reasons": []any{map[string]any{"reason": reason}}},
		}}}
	}
	for reason, want := range map[string]bool{"NonPreemptibleOverQuota": true, "OverLimit": true, "PodSchedulingErrors": false} {
		if got := isPodGroupOverQuota(group("True", reason)); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if isPodGroupOverQuota(group("False", "OverLimit")) || isPodGroupOverQuota(nil) {
		t.Error("a group that does not wait is taken for one that does")
	}
}
