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

	"sluice.dev/test/cluster/kwok"
)

// builder makes the pods of these tests: bound, pending, one container "main".
type builder struct{ *corev1.Pod }

func newPod() builder {
	return builder{&corev1.Pod{
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

func (b builder) with(change func(*corev1.Pod)) builder { change(b.Pod); return b }

func (b builder) restart(policy corev1.RestartPolicy) builder {
	return b.with(func(p *corev1.Pod) { p.Spec.RestartPolicy = policy })
}

func (b builder) annotated(key, value string) builder {
	return b.with(func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) })
}

func (b builder) initContainers(containers ...corev1.Container) builder {
	return b.with(func(p *corev1.Pod) { p.Spec.InitContainers = containers })
}

func (b builder) condition(kind corev1.PodConditionType, status corev1.ConditionStatus) builder {
	return b.with(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	})
}

func (b builder) admitted() builder {
	return b.condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue)
}

func (b builder) deleted(in time.Duration) builder {
	return b.with(func(p *corev1.Pod) {
		at := metav1.NewTime(time.Now().Add(in).Truncate(time.Second))
		p.DeletionTimestamp = &at
	})
}

// normal leaves out of a status what differs from run to run.
var normal = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreTypes(metav1.Time{}, &metav1.Time{}),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ContainerID" },
		cmp.Comparer(func(_, _ string) bool { return true })),
}

func TestAPodStartsOnlyOnceAdmitted(t *testing.T) {
	l := startLab(t)
	l.rests(newPod())
	l.rests(newPod().condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse))
	l.rests(newPod().admitted().with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))

	always := corev1.ContainerRestartPolicyAlways
	pod := newPod().admitted().initContainers(
		corev1.Container{Name: "1", Image: "busybox"},
		corev1.Container{Name: "log", Image: "fluentbit", RestartPolicy: &always})
	delay, after := l.play(pod.Pod, "pod-run")
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
	if diff := cmp.Diff(want, after.Status, normal, byType); diff != "" {
		t.Errorf("a running pod (-want +got):\n%s", diff)
	}
	if after.Status.StartTime.IsZero() || after.Status.ContainerStatuses[0].State.Running.StartedAt.IsZero() {
		t.Error("a running pod has no start times")
	}
	if id := after.Status.ContainerStatuses[0].ContainerID; len(id) != len("kwok://")+64 {
		t.Errorf("container ID %q, want kwok:// and 64 hexadecimal digits", id)
	}
	l.rests(after)
}

// Every patch must fail on a pod of the same name that came later, and on one
// that has changed meanwhile.
func TestPatchesNameTheObject(t *testing.T) {
	l := startLab(t)
	_, running := l.play(newPod().admitted().Pod, "pod-run")
	gates := []corev1.PodReadinessGate{{ConditionType: "lb"}}
	for name, pod := range map[string]*corev1.Pod{
		"pod-run":       newPod().admitted().Pod,
		"pod-exit":      builder{running.DeepCopy()}.annotated(kwok.RunFor, "1s").Pod,
		"pod-terminate": builder{running.DeepCopy()}.deleted(0).Pod,
		"pod-restart":   crashed(l),
		"pod-ready": gated(l, gates).condition("lb", corev1.ConditionTrue).
			annotated(kwok.RunFor, "1s").Pod,
	} {
		t.Run(name, func(t *testing.T) {
			a := l.next(pod)
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

func gated(l *lab, gates []corev1.PodReadinessGate) builder {
	_, pod := l.play(newPod().admitted().with(func(p *corev1.Pod) { p.Spec.ReadinessGates = gates }).Pod, "pod-run")
	return builder{pod}
}

func TestReadinessGatesBelongToOthers(t *testing.T) {
	l := startLab(t)
	gates := []corev1.PodReadinessGate{{ConditionType: "lb"}, {ConditionType: "dns"}}
	pod := gated(l, gates)
	if got := conditionOf(pod.Pod, corev1.PodReady); got != corev1.ConditionFalse {
		t.Fatalf("Ready is %q before its gates are, want False", got)
	}
	l.rests(pod.condition("lb", corev1.ConditionTrue))
	_, ready := l.play(pod.condition("dns", corev1.ConditionTrue).Pod, "pod-ready")
	if got := conditionOf(ready, corev1.PodReady); got != corev1.ConditionTrue {
		t.Errorf("Ready is %q once its gates are true, want True", got)
	}
	l.rests(ready)
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
