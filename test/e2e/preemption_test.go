// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// On Kubernetes' own scheduler interactive work takes the place of training, and
// stays within what is guaranteed; what is nobody's is left alone. Guards that
// nothing of ours preempts what is not ours.
func TestInteractiveWorkPreemptsTraining(t *testing.T) {
	s := own(t)
	const gpus = 8 // of the one node that has whole ones
	s.department(t, "mixed", quota("dgx", "8", "16"))
	s.governed(t, "mixed", "trainers", quota("dgx", "0", "8"))
	s.governed(t, "mixed", "desks", quota("dgx", "8", "8"))

	// A GPU is in use by what runs outside of projects, in a namespace that is exempt.
	s.make(t, namespace("gpu-operator"))
	within(t, func() error {
		return s.admin.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: "default"}, &corev1.ServiceAccount{})
	})
	stranger := podIn("gpu-operator", "validator", withGPU, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	s.make(t, stranger)
	s.awaitRunning(t, "gpu-operator", 1)

	for i := range gpus {
		s.make(t, jobOf("trainers", fmt.Sprintf("train-%d", i), withGPU))
	}
	s.awaitRunning(t, "trainers", gpus-1)

	desk := func(i int) *corev1.Pod {
		return podIn("desks", fmt.Sprintf("desk-%d", i), withGPU, func(p *corev1.Pod) {
			p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		})
	}
	for i := range 3 {
		s.make(t, desk(i))
	}
	s.awaitRunning(t, "desks", 3)
	s.awaitRunning(t, "trainers", gpus-1-3)

	// As many as there are, and one more than there is room for beside the stranger.
	for i := 3; i < gpus; i++ {
		s.make(t, desk(i))
	}
	s.awaitRunning(t, "desks", gpus-1)
	s.awaitRunning(t, "trainers", 0)
	err := s.admin.Create(t.Context(), desk(gpus))
	if !overQuota(err) || !strings.Contains(err.Error(), "guaranteed") && !strings.Contains(err.Error(), "sluice-dgx") {
		t.Errorf("a ninth that cannot be preempted, of eight that are guaranteed: %v", err)
	}
	big := podIn("desks", "big", func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("9")}
	})
	expect(t, s.admin.Create(t.Context(), big), "project desks may have 8 GPUs there")

	var still corev1.Pod
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(stranger), &still); err != nil {
		t.Fatal(err)
	}
	if still.UID != stranger.UID || still.DeletionTimestamp != nil || still.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod outside of projects was not left alone: %s, deleted at %v", still.Status.Phase, still.DeletionTimestamp)
	}
	events, err := s.native.CoreV1().Events("gpu-operator").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted"})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("preempted outside of projects: %v %v", events.Items, err)
	}
}
