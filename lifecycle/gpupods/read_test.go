// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

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

func TestReadTellsGPUPodsByWhatTheyAskFor(t *testing.T) {
	const charge = "sluice.dev/gpu-milli.dgx"
	sidecar := corev1.Container{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	sidecar.Resources.Requests = corev1.ResourceList{charge: resource.MustParse("500")}
	first := corev1.Container{Name: "i"}
	first.Resources.Requests = corev1.ResourceList{charge: resource.MustParse("2k")}
	tests := map[string]struct {
		pod        builder
		is         bool
		milli      workload.Milli
		unreadable bool
	}{
		"nothing":                               {pod: pod("p")},
		"cpu":                                   {pod: pod("p").asking("cpu", "4")},
		"labelled as one":                       {pod: pod("p").labelled("sluice.dev/project", "lab").labelled("sluice.dev/node-pool", "dgx")},
		"a GPU":                                 {pod: gpu("p"), is: true, milli: 1000},
		"two in two containers":                 {pod: gpu("p").asking("nvidia.com/gpu", "1"), is: true, milli: 2000},
		"a slice":                               {pod: pod("p").asking("nvidia.com/mig-1g.10gb", "1"), is: true, milli: 1000},
		"half of one":                           {pod: pod("p").annotated("gpu-fraction", "0.5"), is: true, milli: 500},
		"charged":                               {pod: pod("p").labelled("sluice.dev/project", "lab").asking("nvidia.com/mig-1g.10gb", "1").asking(charge, "143"), is: true, milli: 143},
		"charged, by a name without pool":       {pod: gpu("p").labelled("sluice.dev/project", "lab").asking("sluice.dev/gpu-milli", "500"), is: true, milli: 500},
		"charged by itself":                     {pod: gpu("p").asking(charge, "1"), is: true, milli: 1000},
		"charged beside what runs before":       {pod: gpu("p").labelled("sluice.dev/project", "lab").asking(charge, "1k").with(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar, first} }), is: true, milli: 2500},
		"not to be read":                        {pod: pod("p").annotated("gpu-fraction", "much"), is: true, unreadable: true},
		"to be read, but for a wish":            {pod: gpu("p").annotated("sluice.dev/max-runtime", "forever"), is: true, milli: 1000},
		"none, and a wish that cannot be read":  {pod: pod("p").annotated("sluice.dev/max-runtime", "forever").labelled("sluice.dev/workload-type", "?")},
		"another's GPU":                         {pod: pod("p").asking("amd.com/gpu", "2"), is: true, milli: 2000},
		"a class of GPUs, as if a resource":     {pod: pod("p").asking("deviceclass.resource.kubernetes.io/gpus", "1"), is: true},
		"another class":                         {pod: pod("p").asking("deviceclass.resource.kubernetes.io/disks", "1")},
		"ended well":                            {pod: gpu("p").phase(corev1.PodSucceeded)},
		"ended badly":                           {pod: gpu("p").phase(corev1.PodFailed)},
		"charged more than there are numbers":   {pod: gpu("p").labelled("sluice.dev/project", "lab").asking(charge, "9E").asking(charge, "9E"), is: true, milli: 9223372036854775807},
		"a phase that nobody knows":             {pod: gpu("p").phase("Odd"), is: true, milli: 1000},
		"on a node that nobody can reach":       {pod: gpu("p").phase(corev1.PodUnknown), is: true, milli: 1000},
		"charged negatively, in no real server": {pod: gpu("p").labelled("sluice.dev/project", "lab").asking(charge, "-5"), is: true, milli: 1000},
	}
	names := workload.DefaultNames()
	names["amd.com/gpu"] = workload.UnitGPU
	r := reader{names: names, classes: []string{"gpus"}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f, is := r.read(tc.pod.Pod)
			if is != tc.is {
				t.Fatalf("is one: %v, want %v", is, tc.is)
			}
			if !is {
				return
			}
			if got := f.pod(); got.Milli != tc.milli || got.Unreadable != tc.unreadable {
				t.Errorf("%d thousandths, unreadable %v; want %d, %v", int64(got.Milli), got.Unreadable, int64(tc.milli), tc.unreadable)
			}
		})
	}
}

func TestReadKeepsWhatCounts(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 3, 1, 9, minute, 0, 0, time.UTC)) }
	p := gpu("p").of("Job", "train").on("dgx-1").phase(corev1.PodRunning).
		labelled("sluice.dev/project", "thesis").labelled("sluice.dev/node-pool", "dgx").labelled("sluice.dev/workload-type", "train").
		labelled(LabelPodGroup, "g").
		annotated("sluice.dev/created-by", "anna").annotated("sluice.dev/max-runtime", "1d12h").
		with(func(p *corev1.Pod) {
			deleted, started := at(9), at(1)
			p.CreationTimestamp, p.DeletionTimestamp, p.Status.StartTime = at(0), &deleted, &started
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(2)}}},
				{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(4)}}},
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(3)}}},
			}
		})
	f, _ := (&reader{names: workload.DefaultNames()}).read(p.Pod)
	want := &Pod{
		Namespace: "lab", Name: "p", UID: "uid-p", Node: "dgx-1", Group: "g",
		Controller: Owner{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid-train"},
		Running:    true, Deleting: true, CreatedAt: at(0).Time, StartedAt: at(3).Time,
		Milli: 1000, Pool: "dgx", WorkloadType: "train", Project: "thesis", CreatedBy: "anna", MaxRuntime: period.MustParseDuration("1d12h"),
	}
	if diff := cmp.Diff(want, f.pod(), cmp.Comparer(func(a, b period.Duration) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	waits := gpu("p").with(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "another"}} })
	for _, want := range []bool{false, true} {
		if f, _ := (&reader{names: workload.DefaultNames()}).read(waits.Pod); f.pod().Queued != want {
			t.Errorf("queued %v with %v", !want, waits.Spec.SchedulingGates)
		}
		waits.Spec.SchedulingGates = append(waits.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.GateKueue})
	}

	p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1]
	if f, _ := (&reader{names: workload.DefaultNames()}).read(p.Pod); !f.pod().StartedAt.Equal(at(1).Time) {
		t.Errorf("where all containers restarted, started at %s, want %s", f.pod().StartedAt, at(1))
	}
	p.Status.StartTime, p.Status.ContainerStatuses = nil, nil
	if f, _ := (&reader{names: workload.DefaultNames()}).read(p.Pod); !f.pod().StartedAt.IsZero() {
		t.Errorf("where nothing is known, started at %s", f.pod().StartedAt)
	}
}
