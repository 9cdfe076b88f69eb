// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/cluster/kwok"
)

// within fails the test unless d lies between want and want plus two seconds:
// the API's times are whole seconds, and a pod's time is never cut short.
func within(t *testing.T, what string, d, want time.Duration) {
	t.Helper()
	const started = time.Second // since the pod was started in this test, at most
	if d < want-started || d > want+2*time.Second {
		t.Errorf("%s in %s, want in %s to %s", what, d, want-started, want+2*time.Second)
	}
}

func TestHowAPodEnds(t *testing.T) {
	type ending struct {
		In      time.Duration
		Phase   corev1.PodPhase
		Exit    int32
		Reason  string
		Waiting string
	}
	l := startLab(t)
	for _, tc := range []struct {
		name string
		pod  builder
		want ending
	}{
		{
			"after its time", newPod().annotated(kwok.RunFor, "1m30s"),
			ending{90 * time.Second, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"after a fraction of a second", newPod().annotated(kwok.RunFor, "1500ms"),
			ending{2 * time.Second, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"at once", newPod().annotated(kwok.RunFor, "0s"),
			ending{0, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"on success, where only failures are repeated", newPod().restart(corev1.RestartPolicyOnFailure).annotated(kwok.RunFor, "1h"),
			ending{time.Hour, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"by failing", newPod().annotated(kwok.FailAfter, "10s"),
			ending{10 * time.Second, corev1.PodFailed, 1, "Error", ""},
		},
		{
			"by failing in its own way", newPod().annotated(kwok.FailAfter, "10s").annotated(kwok.ExitCode, "42"),
			ending{10 * time.Second, corev1.PodFailed, 42, "Error", ""},
		},
		{
			"by failing, whatever else it says", newPod().annotated(kwok.FailAfter, "10s").annotated(kwok.RunFor, "1s"),
			ending{10 * time.Second, corev1.PodFailed, 1, "Error", ""},
		},
		{
			"to be repeated after a failure", newPod().restart(corev1.RestartPolicyOnFailure).annotated(kwok.FailAfter, "5s"),
			ending{5 * time.Second, corev1.PodRunning, 1, "Error", "CrashLoopBackOff"},
		},
		{
			"to be repeated always", newPod().restart(corev1.RestartPolicyAlways).annotated(kwok.RunFor, "5s"),
			ending{5 * time.Second, corev1.PodRunning, 0, "Completed", "CrashLoopBackOff"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, running := l.play(tc.pod.admitted().Pod, "pod-run")
			delay, after := l.play(running, "pod-exit")
			within(t, "the pod ends", delay, tc.want.In)
			main := after.Status.ContainerStatuses[0]
			got := ending{In: tc.want.In, Phase: after.Status.Phase}
			terminated := main.State.Terminated
			if main.State.Waiting != nil {
				got.Waiting = main.State.Waiting.Reason
				terminated = main.LastTerminationState.Terminated
			}
			if terminated == nil {
				t.Fatalf("the container has not terminated: %+v", main)
			}
			got.Exit, got.Reason = terminated.ExitCode, terminated.Reason
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if conditionOf(after, corev1.PodReady) != corev1.ConditionFalse {
				t.Error("the pod is ready after its end")
			}
			if terminated.StartedAt.IsZero() || terminated.FinishedAt.IsZero() {
				t.Error("the container's times are missing")
			}
			if tc.want.Waiting == "" {
				l.rests(after)
			}
		})
	}
}

func TestAPodRunsOnWhereItSaysNothingReadable(t *testing.T) {
	l := startLab(t)
	for _, value := range []string{"", "soon", "10", "-1s", "1e3s", "1d", "10s "} {
		_, running := l.play(newPod().admitted().annotated(kwok.RunFor, value).Pod, "pod-run")
		l.rests(running)
	}
	// A Job's pod is no exception.
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train"}
	_, running := l.play(newPod().admitted().with(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{job}
	}).Pod, "pod-run")
	l.rests(running)
}

func TestSidecarsEndWithTheirPod(t *testing.T) {
	l := startLab(t)
	always := corev1.ContainerRestartPolicyAlways
	pod := newPod().annotated(kwok.RunFor, "1s").admitted().initContainers(
		corev1.Container{Name: "1", Image: "busybox"},
		corev1.Container{Name: "log", Image: "fluentbit", RestartPolicy: &always})
	_, running := l.play(pod.Pod, "pod-run")
	_, completed := l.play(running, "pod-exit")
	_, deleted := l.play(builder{running.DeepCopy()}.deleted(0).Pod, "pod-terminate")
	for _, tc := range []struct {
		pod  *corev1.Pod
		exit int32
	}{{completed, 0}, {deleted, 143}} {
		prepare, log := tc.pod.Status.InitContainerStatuses[0], tc.pod.Status.InitContainerStatuses[1]
		if prepare.State.Terminated == nil || prepare.State.Terminated.ExitCode != 0 {
			t.Errorf("the init container is %+v, want completed", prepare.State)
		}
		if log.State.Terminated == nil || log.State.Terminated.ExitCode != tc.exit {
			t.Errorf("the sidecar is %+v, want terminated with %d", log.State, tc.exit)
		}
	}
}

// crashed is a pod in its first back-off.
func crashed(l *lab) *corev1.Pod {
	l.t.Helper()
	pod := newPod().restart(corev1.RestartPolicyAlways).annotated(kwok.FailAfter, "1s").admitted()
	_, running := l.play(pod.Pod, "pod-run")
	_, crashed := l.play(running, "pod-exit")
	return crashed
}

func TestCrashLoop(t *testing.T) {
	l := startLab(t)
	pod := crashed(l)
	for restarts, backOff := range []int{10, 20, 40, 80, 160, 300, 300} {
		delay, running := l.play(pod, "pod-restart")
		within(t, "restarted", delay, time.Duration(backOff)*time.Second)
		main := running.Status.ContainerStatuses[0]
		if main.RestartCount != int32(restarts+1) || main.State.Running == nil || !main.Ready {
			t.Fatalf("after restart %d the container is %+v", restarts+1, main)
		}
		if conditionOf(running, corev1.PodReady) != corev1.ConditionTrue {
			t.Fatalf("after restart %d the pod is not ready", restarts+1)
		}
		if main.LastTerminationState.Terminated == nil {
			t.Fatal("the last termination is forgotten")
		}
		_, pod = l.play(running, "pod-exit")
	}
}

func TestHowAPodIsDeleted(t *testing.T) {
	l := startLab(t)
	_, running := l.play(newPod().admitted().annotated(kwok.RunFor, "1s").Pod, "pod-run")

	delay, ended := l.play(builder{running.DeepCopy()}.deleted(30*time.Second).Pod, "pod-terminate")
	if delay < 30*time.Second || delay > 32*time.Second {
		t.Errorf("the pod ends %s after its deletion, want its grace period of 30s and at most 2s more", delay)
	}
	state := ended.Status.ContainerStatuses[0].State.Terminated
	if ended.Status.Phase != corev1.PodFailed || state == nil || state.ExitCode != 143 {
		t.Errorf("the pod ends as %s with %+v, want Failed with exit code 143", ended.Status.Phase, state)
	}
	l.rests(ended)
	l.rests(newPod().deleted(30 * time.Second))

	delay, ended = l.play(builder{crashed(l)}.deleted(30*time.Second).Pod, "pod-terminate")
	if delay > 0 {
		t.Errorf("a pod with nothing running ends %s after its deletion, want at once", delay)
	}
	if state := ended.Status.ContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 1 {
		t.Errorf("its container is %+v, want terminated as it last was", state)
	}

	// By force: the API server removes it itself, unless a finalizer keeps it.
	forced := builder{running.DeepCopy()}.deleted(0).with(func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(0)) })
	l.rests(forced)
	l.play(forced.with(func(p *corev1.Pod) { p.Finalizers = []string{"example.org/archive"} }).Pod, "pod-terminate")
}
