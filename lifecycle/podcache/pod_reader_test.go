// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

func TestReadSelectsGPUPodsByRequest(t *testing.T) {
	const charge = "sluice.dev/gpu-milli.dgx"
	sidecar := corev1.Container{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	sidecar.Resources.Requests = corev1.ResourceList{charge: resource.MustParse("500")}
	first := corev1.Container{Name: "i"}
	first.Resources.Requests = corev1.ResourceList{charge: resource.MustParse("2k")}
	tests := map[string]struct {
		pod        podBuilder
		is         bool
		milli      workload.Milli
		resource   corev1.ResourceName
		unreadable bool
	}{
		"no request":                      {pod: newPod("p")},
		"cpu":                             {pod: newPod("p").withRequest("cpu", "4")},
		"labels only":                     {pod: newPod("p").withLabel("sluice.dev/project", "lab").withLabel("sluice.dev/node-pool", "dgx")},
		"a GPU":                           {pod: newGPUPod("p"), is: true, milli: 1000},
		"two in two containers":           {pod: newGPUPod("p").withRequest("nvidia.com/gpu", "1"), is: true, milli: 2000},
		"a slice":                         {pod: newPod("p").withRequest("nvidia.com/mig-1g.10gb", "1"), is: true, milli: 1000},
		"half of one":                     {pod: newPod("p").withAnnotation("gpu-fraction", "0.5"), is: true, milli: 500},
		"charged":                         {pod: newPod("p").withLabel("sluice.dev/project", "lab").withRequest("nvidia.com/mig-1g.10gb", "1").withRequest(charge, "143"), is: true, milli: 143, resource: charge},
		"charged, by a name without pool": {pod: newGPUPod("p").withLabel("sluice.dev/project", "lab").withRequest("sluice.dev/gpu-milli", "500"), is: true, milli: 500, resource: "sluice.dev/gpu-milli"},
		"charged without admission":       {pod: newGPUPod("p").withRequest(charge, "1"), is: true, milli: 1000},
		"charged with init containers":    {pod: newGPUPod("p").withLabel("sluice.dev/project", "lab").withRequest(charge, "1k").withChange(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar, first} }), is: true, milli: 2500, resource: charge},
		"malformed GPU request":           {pod: newPod("p").withAnnotation("gpu-fraction", "much"), is: true, unreadable: true},
		"malformed max runtime":           {pod: newGPUPod("p").withAnnotation("sluice.dev/max-runtime", "forever"), is: true, milli: 1000},
		"no GPU and malformed options":    {pod: newPod("p").withAnnotation("sluice.dev/max-runtime", "forever").withLabel("sluice.dev/workload-type", "?")},
		"another vendor's GPU":            {pod: newPod("p").withRequest("amd.com/gpu", "2"), is: true, milli: 2000},
		"a device class of GPUs":          {pod: newPod("p").withRequest("deviceclass.resource.kubernetes.io/gpus", "1"), is: true},
		"another device class":            {pod: newPod("p").withRequest("deviceclass.resource.kubernetes.io/disks", "1")},
		"succeeded":                       {pod: newGPUPod("p").withPhase(corev1.PodSucceeded)},
		"failed":                          {pod: newGPUPod("p").withPhase(corev1.PodFailed)},
		"charge overflows":                {pod: newGPUPod("p").withLabel("sluice.dev/project", "lab").withRequest(charge, "9E").withRequest(charge, "9E"), is: true, milli: 9223372036854775807, resource: charge},
		"unknown phase":                   {pod: newGPUPod("p").withPhase("Odd"), is: true, milli: 1000},
		"on an unreachable node":          {pod: newGPUPod("p").withPhase(corev1.PodUnknown), is: true, milli: 1000},
		"negative charge":                 {pod: newGPUPod("p").withLabel("sluice.dev/project", "lab").withRequest(charge, "-5"), is: true, milli: 1000},
	}
	names := workload.DefaultResourceUnits()
	names["amd.com/gpu"] = workload.UnitGPU
	r := podReader{gpuNames: names, deviceClasses: []string{"gpus"}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f, is := r.read(tc.pod.Pod)
			if is != tc.is {
				t.Fatalf("is GPU pod: %v, want %v", is, tc.is)
			}
			if !is {
				return
			}
			if got := f.toPod(); got.Milli != tc.milli || got.QuotaResource != tc.resource || got.Unreadable != tc.unreadable {
				t.Errorf("%d thousandths of %q, unreadable %v; want %d of %q, %v",
					int64(got.Milli), got.QuotaResource, got.Unreadable, int64(tc.milli), tc.resource, tc.unreadable)
			}
		})
	}
}

func TestReadFields(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 3, 1, 9, minute, 0, 0, time.UTC)) }
	p := newGPUPod("p").controlledBy("Job", "train").onNode("dgx-1").withPhase(corev1.PodRunning).
		withLabel("sluice.dev/project", "thesis").withLabel("sluice.dev/node-pool", "dgx").withLabel("sluice.dev/workload-type", "train").
		withLabel(v1alpha1.LabelKueuePodGroup, "g").
		withAnnotation("sluice.dev/created-by", "anna").withAnnotation("sluice.dev/max-runtime", "1d12h").
		withChange(func(p *corev1.Pod) {
			deleted, started := at(9), at(1)
			p.CreationTimestamp, p.DeletionTimestamp, p.Status.StartTime = at(0), &deleted, &started
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(2)}}},
				{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(4)}}},
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(3)}}},
			}
		})
	f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(p.Pod)
	want := &Pod{
		Namespace: "lab", Name: "p", UID: "uid-p", Node: "dgx-1", Group: "g",
		Controller: Owner{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid-train"},
		Running:    true, Deleting: true, GraceEndsAt: at(9).Time, CreatedAt: at(0).Time, StartedAt: at(3).Time, BoundAt: at(1).Time,
		Milli: 1000, Pool: "dgx", WorkloadType: "train", Project: "thesis", CreatedBy: "anna", MaxRuntime: period.MustParseDuration("1d12h"),
	}
	if diff := cmp.Diff(want, f.toPod(), cmp.Comparer(func(a, b period.Duration) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	waits := newGPUPod("p").withChange(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "another"}} })
	for _, want := range []bool{false, true} {
		if f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(waits.Pod); f.toPod().Queued != want {
			t.Errorf("queued %v with %v", !want, waits.Spec.SchedulingGates)
		}
		waits.Spec.SchedulingGates = append(waits.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.GateKueue})
	}
	admitted := newGPUPod("p").withLabel(v1alpha1.LabelKueuePodSet, "main")
	for _, want := range []bool{true, false} {
		if f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(admitted.Pod); f.toPod().Admitted != want {
			t.Errorf("admitted %v with %v", !want, admitted.Spec.SchedulingGates)
		}
		admitted.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateKueue}}
	}

	p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1]
	if f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(p.Pod); !f.toPod().StartedAt.Equal(at(1).Time) {
		t.Errorf("with restarted containers, started at %s, want %s", f.toPod().StartedAt, at(1))
	}
	p.Status.StartTime, p.Status.ContainerStatuses = nil, nil
	if f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(p.Pod); !f.toPod().StartedAt.IsZero() {
		t.Errorf("without status, started at %s", f.toPod().StartedAt)
	}
}

// A pod holds its GPUs from its binding, and runs from the start of its first container. An
// init container counts, although the phase is Pending while it runs.
func TestReadRunningAndBound(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 3, 1, 9, minute, 0, 0, time.UTC)) }
	waiting := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(5)}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(4)}}}
	crashed := waiting("CrashLoopBackOff")
	crashed.RestartCount, crashed.LastTerminationState = 1, ended.State
	for name, tc := range map[string]struct {
		change  func(*corev1.PodStatus)
		node    string
		running bool
		started time.Time
	}{
		"unbound": {func(*corev1.PodStatus) {}, "", false, time.Time{}},
		"bound":   {func(*corev1.PodStatus) {}, "dgx-1", false, at(2).Time},
		"an image that cannot be pulled": {func(s *corev1.PodStatus) {
			s.ContainerStatuses = append(s.ContainerStatuses, waiting("ImagePullBackOff"))
		}, "dgx-1", false, at(2).Time},
		"a container that cannot be made": {func(s *corev1.PodStatus) {
			s.ContainerStatuses = append(s.ContainerStatuses, waiting("CreateContainerError"))
		}, "dgx-1", false, at(2).Time},
		"an init container runs": {func(s *corev1.PodStatus) { s.InitContainerStatuses = append(s.InitContainerStatuses, running) }, "dgx-1", true, at(5).Time},
		"between two init containers": {func(s *corev1.PodStatus) {
			s.InitContainerStatuses = append(s.InitContainerStatuses, ended, waiting("PodInitializing"))
		}, "dgx-1", true, at(4).Time},
		"an init container in CrashLoop": {func(s *corev1.PodStatus) { s.InitContainerStatuses = append(s.InitContainerStatuses, crashed) }, "dgx-1", true, at(2).Time},
		"an init container ran, a main one": {func(s *corev1.PodStatus) {
			s.InitContainerStatuses, s.ContainerStatuses, s.Phase = []corev1.ContainerStatus{ended}, []corev1.ContainerStatus{running}, corev1.PodRunning
		}, "dgx-1", true, at(4).Time},
	} {
		t.Run(name, func(t *testing.T) {
			p := newGPUPod("p").onNode(tc.node).withChange(func(p *corev1.Pod) {
				p.CreationTimestamp = at(0)
				if tc.node != "" {
					accepted := at(2)
					p.Status.StartTime = &accepted
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(1)}}
				}
				tc.change(&p.Status)
			})
			f, _ := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(p.Pod)
			got, wantBound := f.toPod(), time.Time{}
			if tc.node != "" {
				wantBound = at(1).Time
			}
			if got.Running != tc.running || got.IsBound() != (tc.node != "") || !got.BoundAt.Equal(wantBound) || !got.StartedAt.Equal(tc.started) {
				t.Errorf("running %v, bound at %s, started at %s; want %v, %s, %s",
					got.Running, got.BoundAt, got.StartedAt, tc.running, wantBound, tc.started)
			}
		})
	}
}
