// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/lab/cluster/kwok"
)

// podBuilder builds the pods of these tests: bound, pending, one container "main".
type podBuilder struct{ *corev1.Pod }

func newPod() podBuilder {
	return podBuilder{&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "train", Namespace: "thesis", UID: "11", ResourceVersion: "41", Generation: 1,
		},
		Spec: corev1.PodSpec{
			NodeName:      "dgx-1",
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "pytorch:2.9"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

func (b podBuilder) with(change func(*corev1.Pod)) podBuilder { change(b.Pod); return b }

func (b podBuilder) restart(policy corev1.RestartPolicy) podBuilder {
	return b.with(func(p *corev1.Pod) { p.Spec.RestartPolicy = policy })
}

func (b podBuilder) withAnnotation(key, value string) podBuilder {
	return b.with(func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) })
}

func (b podBuilder) initContainers(containers ...corev1.Container) podBuilder {
	return b.with(func(p *corev1.Pod) { p.Spec.InitContainers = containers })
}

func (b podBuilder) condition(kind corev1.PodConditionType, status corev1.ConditionStatus) podBuilder {
	return b.with(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	})
}

func (b podBuilder) admitted() podBuilder {
	return b.condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue)
}

func (b podBuilder) withDeletion(in time.Duration) podBuilder {
	return b.with(func(p *corev1.Pod) {
		at := metav1.NewTime(time.Now().Add(in).Truncate(time.Second))
		p.DeletionTimestamp = &at
	})
}

// compareOptions ignores the parts of a status that differ between runs.
var compareOptions = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreTypes(metav1.Time{}, &metav1.Time{}),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ContainerID" },
		cmp.Comparer(func(_, _ string) bool { return true })),
}

func TestPodStartsOnlyAfterAdmission(t *testing.T) {
	l := startStageRunner(t)
	l.assertNoStage(newPod())
	l.assertNoStage(newPod().condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse))
	l.assertNoStage(newPod().admitted().with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))

	always := corev1.ContainerRestartPolicyAlways
	pod := newPod().admitted().initContainers(
		corev1.Container{Name: "1", Image: "busybox"},
		corev1.Container{Name: "log", Image: "fluentbit", RestartPolicy: &always})
	delay, after := l.runStage(pod.Pod, "pod-run")
	if delay != 0 {
		t.Errorf("an admitted pod starts after %s, want at once", delay)
	}
	want := corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		HostIP:             "198.18.0.1",
		HostIPs:            []corev1.HostIP{{IP: "198.18.0.1"}},
		PodIP:              "198.19.0.1",
		PodIPs:             []corev1.PodIP{{IP: "198.19.0.1"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		},
		InitContainerStatuses: []corev1.ContainerStatus{
			{
				Name: "1", Image: "busybox", Ready: true, Started: new(false),
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
			},
			{
				Name: "log", Image: "fluentbit", Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "pytorch:2.9", Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	byType := cmpopts.SortSlices(func(a, b corev1.PodCondition) bool { return a.Type < b.Type })
	if diff := cmp.Diff(want, after.Status, compareOptions, byType); diff != "" {
		t.Errorf("a running pod (-want +got):\n%s", diff)
	}
	if after.Status.StartTime.IsZero() || after.Status.ContainerStatuses[0].State.Running.StartedAt.IsZero() {
		t.Error("a running pod has no start times")
	}
	if id := after.Status.ContainerStatuses[0].ContainerID; len(id) != len("kwok://")+64 {
		t.Errorf("container ID %q, want kwok:// and 64 hexadecimal digits", id)
	}
	l.assertNoStage(after)
}

// Each patch must fail on a later pod of the same name, and on a pod that has changed
// meanwhile.
func TestPatchesContainObjectUID(t *testing.T) {
	l := startStageRunner(t)
	_, running := l.runStage(newPod().admitted().Pod, "pod-run")
	gates := []corev1.PodReadinessGate{{ConditionType: "lb"}}
	for name, pod := range map[string]*corev1.Pod{
		"pod-run":       newPod().admitted().Pod,
		"pod-exit":      podBuilder{running.DeepCopy()}.withAnnotation(kwok.RunFor, "1s").Pod,
		"pod-terminate": podBuilder{running.DeepCopy()}.withDeletion(0).Pod,
		"pod-restart":   crashedPod(l),
		"pod-ready": podWithGates(l, gates).condition("lb", corev1.ConditionTrue).
			withAnnotation(kwok.RunFor, "1s").Pod,
	} {
		t.Run(name, func(t *testing.T) {
			a := l.nextStage(pod)
			if diff := cmp.Diff([]string{name}, a.Stages); diff != "" {
				t.Fatalf("stages (-want +got):\n%s", diff)
			}
			want := map[string]any{"uid": "11", "resourceVersion": "41"}
			if diff := cmp.Diff(want, a.Patch["metadata"]); diff != "" {
				t.Errorf("the patch's metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func podWithGates(l *stageRunner, gates []corev1.PodReadinessGate) podBuilder {
	_, pod := l.runStage(newPod().admitted().with(func(p *corev1.Pod) { p.Spec.ReadinessGates = gates }).Pod, "pod-run")
	return podBuilder{pod}
}

func TestReadinessGatesUntouched(t *testing.T) {
	l := startStageRunner(t)
	gates := []corev1.PodReadinessGate{{ConditionType: "lb"}, {ConditionType: "dns"}}
	pod := podWithGates(l, gates)
	if got := conditionStatus(pod.Pod, corev1.PodReady); got != corev1.ConditionFalse {
		t.Fatalf("Ready is %q before its gates are, want False", got)
	}
	l.assertNoStage(pod.condition("lb", corev1.ConditionTrue))
	_, ready := l.runStage(pod.condition("dns", corev1.ConditionTrue).Pod, "pod-ready")
	if got := conditionStatus(ready, corev1.PodReady); got != corev1.ConditionTrue {
		t.Errorf("Ready is %q once its gates are true, want True", got)
	}
	l.assertNoStage(ready)
}

func conditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// assertDelay fails the test unless d is between want and want plus two seconds: the API
// has whole seconds, and rounding never shortens a pod's time. The delay began after the time
// began, so that it may be shorter by what has passed since then.
func assertDelay(t *testing.T, what string, began time.Time, d, want time.Duration) {
	t.Helper()
	if passed := time.Since(began); d < want-passed || d > want+2*time.Second {
		t.Errorf("%s after %s, want %s to %s", what, d, want-passed, want+2*time.Second)
	}
}

func TestPodCompletion(t *testing.T) {
	type ending struct {
		In      time.Duration
		Phase   corev1.PodPhase
		Exit    int32
		Reason  string
		Waiting string
	}
	l := startStageRunner(t)
	for _, tc := range []struct {
		name string
		pod  podBuilder
		want ending
	}{
		{
			"after its time", newPod().withAnnotation(kwok.RunFor, "1m30s"),
			ending{90 * time.Second, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"after a fraction of a second", newPod().withAnnotation(kwok.RunFor, "1500ms"),
			ending{2 * time.Second, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"at once", newPod().withAnnotation(kwok.RunFor, "0s"),
			ending{0, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"on success with restart policy OnFailure", newPod().restart(corev1.RestartPolicyOnFailure).withAnnotation(kwok.RunFor, "1h"),
			ending{time.Hour, corev1.PodSucceeded, 0, "Completed", ""},
		},
		{
			"by failing", newPod().withAnnotation(kwok.FailAfter, "10s"),
			ending{10 * time.Second, corev1.PodFailed, 1, "Error", ""},
		},
		{
			"with an exit code", newPod().withAnnotation(kwok.FailAfter, "10s").withAnnotation(kwok.ExitCode, "42"),
			ending{10 * time.Second, corev1.PodFailed, 42, "Error", ""},
		},
		{
			"by failing, although run-for is set too", newPod().withAnnotation(kwok.FailAfter, "10s").withAnnotation(kwok.RunFor, "1s"),
			ending{10 * time.Second, corev1.PodFailed, 1, "Error", ""},
		},
		{
			"to restart after a failure", newPod().restart(corev1.RestartPolicyOnFailure).withAnnotation(kwok.FailAfter, "5s"),
			ending{5 * time.Second, corev1.PodRunning, 1, "Error", "CrashLoopBackOff"},
		},
		{
			"to restart always", newPod().restart(corev1.RestartPolicyAlways).withAnnotation(kwok.RunFor, "5s"),
			ending{5 * time.Second, corev1.PodRunning, 0, "Completed", "CrashLoopBackOff"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			_, running := l.runStage(tc.pod.admitted().Pod, "pod-run")
			delay, after := l.runStage(running, "pod-exit")
			assertDelay(t, "the pod ends", began, delay, tc.want.In)
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
			if conditionStatus(after, corev1.PodReady) != corev1.ConditionFalse {
				t.Error("the pod is ready after its end")
			}
			if terminated.StartedAt.IsZero() || terminated.FinishedAt.IsZero() {
				t.Error("the container's times are missing")
			}
			if tc.want.Waiting == "" {
				l.assertNoStage(after)
			}
		})
	}
}

func TestPodKeepsRunningWithInvalidAnnotations(t *testing.T) {
	l := startStageRunner(t)
	for _, value := range []string{"", "soon", "10", "-1s", "1e3s", "1d", "10s "} {
		_, running := l.runStage(newPod().admitted().withAnnotation(kwok.RunFor, value).Pod, "pod-run")
		l.assertNoStage(running)
	}
	// This includes a Job's pod.
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train"}
	_, running := l.runStage(newPod().admitted().with(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{job}
	}).Pod, "pod-run")
	l.assertNoStage(running)
}

func TestSidecarsEndWithPod(t *testing.T) {
	l := startStageRunner(t)
	always := corev1.ContainerRestartPolicyAlways
	pod := newPod().withAnnotation(kwok.RunFor, "1s").admitted().initContainers(
		corev1.Container{Name: "1", Image: "busybox"},
		corev1.Container{Name: "log", Image: "fluentbit", RestartPolicy: &always})
	_, running := l.runStage(pod.Pod, "pod-run")
	_, completed := l.runStage(running, "pod-exit")
	_, deleted := l.runStage(podBuilder{running.DeepCopy()}.withDeletion(0).Pod, "pod-terminate")
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

// crashedPod returns a pod in its first back-off.
func crashedPod(l *stageRunner) *corev1.Pod {
	l.t.Helper()
	pod := newPod().restart(corev1.RestartPolicyAlways).withAnnotation(kwok.FailAfter, "1s").admitted()
	_, running := l.runStage(pod.Pod, "pod-run")
	_, crashed := l.runStage(running, "pod-exit")
	return crashed
}

func TestCrashLoop(t *testing.T) {
	l := startStageRunner(t)
	began := time.Now()
	pod := crashedPod(l)
	for restarts, backOff := range []int{10, 20, 40, 80, 160, 300, 300} {
		delay, running := l.runStage(pod, "pod-restart")
		assertDelay(t, "restarted", began, delay, time.Duration(backOff)*time.Second)
		main := running.Status.ContainerStatuses[0]
		if main.RestartCount != int32(restarts+1) || main.State.Running == nil || !main.Ready {
			t.Fatalf("after restart %d the container is %+v", restarts+1, main)
		}
		if conditionStatus(running, corev1.PodReady) != corev1.ConditionTrue {
			t.Fatalf("after restart %d the pod is not ready", restarts+1)
		}
		if main.LastTerminationState.Terminated == nil {
			t.Fatal("the last termination is missing")
		}
		began = time.Now()
		_, pod = l.runStage(running, "pod-exit")
	}
}

func TestPodDeletion(t *testing.T) {
	l := startStageRunner(t)
	_, running := l.runStage(newPod().admitted().withAnnotation(kwok.RunFor, "1s").Pod, "pod-run")

	began := time.Now()
	delay, ended := l.runStage(podBuilder{running.DeepCopy()}.withDeletion(30*time.Second).Pod, "pod-terminate")
	assertDelay(t, "the deleted pod ends", began, delay, 30*time.Second)
	state := ended.Status.ContainerStatuses[0].State.Terminated
	if ended.Status.Phase != corev1.PodFailed || state == nil || state.ExitCode != 143 {
		t.Errorf("the pod ends as %s with %+v, want Failed with exit code 143", ended.Status.Phase, state)
	}
	l.assertNoStage(ended)
	l.assertNoStage(newPod().withDeletion(30 * time.Second))

	delay, ended = l.runStage(podBuilder{crashedPod(l)}.withDeletion(30*time.Second).Pod, "pod-terminate")
	if delay > 0 {
		t.Errorf("a pod with nothing running ends %s after its deletion, want at once", delay)
	}
	if state := ended.Status.ContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 1 {
		t.Errorf("its container is %+v, want its last termination", state)
	}

	// Forced deletion: the API server removes the pod itself, unless a finalizer keeps it.
	forced := podBuilder{running.DeepCopy()}.withDeletion(0).with(func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(0)) })
	l.assertNoStage(forced)
	l.runStage(forced.with(func(p *corev1.Pod) { p.Finalizers = []string{"example.org/archive"} }).Pod, "pod-terminate")
}
