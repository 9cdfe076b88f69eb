// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/kwok"
)

func TestDeletionHonorsGracePeriod(t *testing.T) {
	w := newTestEnv(t)
	const grace = 4 * time.Second
	created := w.createAndWaitRunning(newTestPod("train").onNode(wholeGPUNode).requestingGPUs(1).withGracePeriod(int64(grace.Seconds())))
	events, err := w.client.CoreV1().Pods(w.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	deleted := time.Now()
	w.delete("train", metav1.DeleteOptions{})
	last := created
	for event := range events.ResultChan() {
		last = event.Object.(*corev1.Pod)
		if last.Status.Phase != corev1.PodRunning && time.Since(deleted) < grace {
			t.Fatalf("the pod is %s %s after its deletion, within its grace period", last.Status.Phase, time.Since(deleted))
		}
		if event.Type == watch.Deleted {
			break
		}
	}
	// Package kwok tests the exact delay.
	if took := time.Since(deleted); took < grace {
		t.Errorf("the pod was gone after %s, want at least %s", took, grace)
	}
	if state := last.Status.ContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 143 {
		t.Errorf("its container is %+v after its end, want exit code 143", last.Status.ContainerStatuses[0].State)
	}
	if held := w.deviceHolders(wholeGPUNode); len(held) > 0 {
		t.Errorf("after its deletion the pod holds %v", held)
	}
}

func TestFinalizersKept(t *testing.T) {
	w := newTestEnv(t)
	const finalizer = "example.org/archive"
	w.createAndWaitRunning(newTestPod("kept").onNode(wholeGPUNode).with(func(p *corev1.Pod) { p.Finalizers = []string{finalizer} }))
	w.delete("kept", metav1.DeleteOptions{})
	kept := w.waitForPhase("kept", corev1.PodFailed)
	if len(kept.Finalizers) != 1 || kept.Finalizers[0] != finalizer {
		t.Errorf("the finalizers are %v, want %s", kept.Finalizers, finalizer)
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), "kept", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForDeletion("kept")
}

// A pod that waits for the processes of an ended one is bound to its node and has not
// started. It ends, as with a kubelet, before it is removed: the admission of a governed namespace
// refuses the removal of a pod with GPUs that has not ended.
func TestUnstartedPodDeletedImmediately(t *testing.T) {
	w := newTestEnv(t)
	events, err := w.client.CoreV1().Pods(w.namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=waiting"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	const finalizer = "example.org/archive"
	// The processes outlive the pod until both others are deleted, and those have a grace period that no wait of the test
	// lasts, also on a busy machine.
	t.Cleanup(w.endProcesses)
	w.createAndWaitRunning(newTestPod("old").onNode(wholeGPUNode).requestingGPUs(8).withAnnotation(fakekubelet.ExitDelay, longExitDelay.String()))
	w.delete("old", *metav1.NewDeleteOptions(0))
	for _, name := range []string{"waiting", "kept"} {
		w.create(newTestPod(name).onNode(wholeGPUNode).requestingGPUs(4).withGracePeriod(3600).with(func(p *corev1.Pod) {
			if name == "kept" {
				p.Finalizers = []string{finalizer}
			}
		}))
		w.waitForPod(name, func(p *corev1.Pod) bool { return p.Spec.NodeName == wholeGPUNode })
		w.delete(name, metav1.DeleteOptions{})
	}
	if kept := w.waitForPhase("kept", corev1.PodFailed); len(kept.Status.ContainerStatuses) > 0 {
		t.Errorf("the pod with the finalizer has run: %+v", kept.Status.ContainerStatuses)
	}
	w.waitForDeletion("waiting")
	for event := range events.ResultChan() {
		if pod := event.Object.(*corev1.Pod); event.Type == watch.Deleted {
			if pod.Status.Phase != corev1.PodFailed {
				t.Errorf("the pod was removed in phase %s, want Failed", pod.Status.Phase)
			}
			break
		}
	}
}

func TestPodsEndAsAnnotated(t *testing.T) {
	w := newTestEnv(t)
	w.create(newTestPod("completes").onNode(wholeGPUNode).requestingGPUs(1).withAnnotation(kwok.RunFor, "1s"))
	w.create(newTestPod("fails").onNode(wholeGPUNode).requestingGPUs(1).
		withAnnotation(kwok.FailAfter, "1s").withAnnotation(kwok.ExitCode, "42"))
	w.create(newTestPod("restarts").onNode(wholeGPUNode).requestingGPUs(1).withAnnotation(kwok.FailAfter, "1s").with(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}))
	completed := w.waitForPhase("completes", corev1.PodSucceeded).Status.ContainerStatuses[0].State.Terminated
	if completed == nil || completed.ExitCode != 0 || completed.FinishedAt.Sub(completed.StartedAt.Time) < time.Second {
		t.Errorf("the pod that completes: %+v", completed)
	}
	if failed := w.waitForPhase("fails", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated; failed == nil ||
		failed.ExitCode != 42 {
		t.Errorf("the pod that fails: %+v", failed)
	}
	w.waitForPod("restarts", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 0 &&
			p.Status.ContainerStatuses[0].State.Waiting != nil
	})
	again := w.waitForPod("restarts", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount >= 1 })
	if again.Status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
		t.Errorf("the pod that restarts: %+v", again.Status.ContainerStatuses[0])
	}
	// The pod has kept its device, and the other pods have released theirs.
	clustertest.Eventually(t, func() error {
		held := w.deviceHolders(wholeGPUNode)
		if _, kept := held["restarts/main"]; !kept || len(held) != 1 {
			return fmt.Errorf("the pods hold %v, want one device for the pod that restarts", held)
		}
		return nil
	})
	w.create(newTestPod("unreadable").onNode(wholeGPUNode).withAnnotation(kwok.RunFor, "soon"))
	if got := w.waitForPhase("unreadable", corev1.PodFailed); got.Status.Reason != "InvalidSimulation" {
		t.Errorf("the pod with an invalid annotation: %s: %s", got.Status.Reason, got.Status.Message)
	}
}

func TestJobCompletesOnlyIfAnnotated(t *testing.T) {
	w := newTestEnv(t)
	job := func(name string, p testPod) *batchv1.Job {
		t.Helper()
		created, err := w.client.BatchV1().Jobs(w.namespace).Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: batchv1.JobSpec{
				Completions: new(int32(2)),
				Parallelism: new(int32(2)),
				Template:    corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	state := func(name string, condition func(batchv1.JobStatus) bool) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			got, err := w.client.BatchV1().Jobs(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !condition(got.Status) {
				return fmt.Errorf("job %s: %+v", name, got.Status)
			}
			return nil
		})
	}
	job("endless", newTestPod("").onNode(wholeGPUNode).requestingGPUs(1))
	state("endless", func(s batchv1.JobStatus) bool { return s.Active == 2 && s.Ready != nil && *s.Ready == 2 })
	job("ending", newTestPod("").onNode(wholeGPUNode).requestingGPUs(1).withAnnotation(kwok.RunFor, "2s"))
	state("ending", func(s batchv1.JobStatus) bool { return s.Succeeded == 2 && s.CompletionTime != nil })
	state("endless", func(s batchv1.JobStatus) bool { return s.Active == 2 && s.Succeeded == 0 && s.CompletionTime == nil })
}
