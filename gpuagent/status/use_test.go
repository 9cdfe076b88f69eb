// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/utilization"
)

func newUseReport(at, lastActive time.Time, memoryMiB int64) Report {
	use := utilization.PodUse{LastActive: &lastActive, MemoryMiB: &memoryMiB}
	return Report{
		GPUs: []v1alpha1.ObservedGPU{}, Pods: []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u"}}},
		Use: &utilization.Result{At: at, Pods: map[types.UID]utilization.PodUse{"u": use}},
	}
}

// The use is written at the rates of its readers: a change every 30 s, and a sample at least every minute,
// since readers take an agent whose last sample is three minutes old for absent.
func TestUseIsWrittenAtItsRates(t *testing.T) {
	w := &Writer{}
	base := newUseReport(testNow, testNow, 1000)
	first := w.mergeStatus(&v1alpha1.GPUNodeStatus{}, base, testNow)
	if first.SampledAt == nil || !first.SampledAt.Time.Equal(testNow) || *first.Pods[0].MemoryMiB != 1000 || !first.Pods[0].LastActive.Time.Equal(testNow) {
		t.Fatalf("the first sample is %+v", first)
	}
	at := func(after time.Duration) time.Time { return testNow.Add(after) }
	for name, tt := range map[string]struct {
		report Report
		want   bool // whether it is written
	}{
		"nothing changed":                     {newUseReport(at(49*time.Second), testNow, 1000), false},
		"nothing changed for an interval":     {newUseReport(at(50*time.Second), testNow, 1000), true},
		"use, soon":                           {newUseReport(at(29*time.Second), at(29*time.Second), 1000), false},
		"use":                                 {newUseReport(at(30*time.Second), at(30*time.Second), 1000), true},
		"use that does not continue":          {newUseReport(at(40*time.Second), at(29*time.Second), 1000), false},
		"memory, soon":                        {newUseReport(at(29*time.Second), testNow, 5000), false},
		"memory":                              {newUseReport(at(30*time.Second), testNow, 1053), true},
		"less than a twentieth of the memory": {newUseReport(at(30*time.Second), testNow, 1052), false},
		"memory that is unknown":              {withoutMemory(newUseReport(at(30*time.Second), testNow, 0)), true},
		"no sample":                           {Report{GPUs: base.GPUs, Pods: base.Pods}, false},
		"another pod": {Report{
			GPUs: base.GPUs, Use: newUseReport(at(time.Second), testNow, 1000).Use,
			Pods: append(base.Pods[:1:1], v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: "v"}}),
		}, true},
		"the assignment of pods is unknown":  {Report{GPUs: base.GPUs, Use: newUseReport(at(time.Hour), testNow, 1).Use}, false},
		"the driver does not list the GPUs":  {Report{Pods: base.Pods, Use: newUseReport(at(time.Hour), testNow, 1).Use}, false},
		"the clock was set back":             {newUseReport(at(-time.Hour), at(-time.Hour), 1000), true},
		"another second of a drifting clock": {newUseReport(at(-time.Second), testNow, 1000), false},
	} {
		next := w.mergeStatus(first, tt.report, testNow)
		if got := !next.SampledAt.Equal(first.SampledAt); got != tt.want {
			t.Errorf("%s: written is %v", name, got)
		} else if got && !next.SampledAt.Time.Equal(tt.report.Use.At) {
			t.Errorf("%s: sampled at %s, want %s", name, next.SampledAt, tt.report.Use.At)
		}
		if !tt.want && ptr.Deref(next.Pods[0].MemoryMiB, 0) != 1000 {
			t.Errorf("%s: the use in the status is not of its sample: %+v", name, next.Pods[0])
		}
	}
	unknown := w.mergeStatus(first, withoutMemory(newUseReport(at(time.Minute), testNow, 0)), testNow)
	if unknown.Pods[0].MemoryMiB != nil || unknown.Pods[0].LastActive != nil {
		t.Errorf("what is unknown stays in the status: %+v", unknown.Pods[0])
	}
}

func withoutMemory(r Report) Report {
	r.Use.Pods["u"] = utilization.PodUse{}
	return r
}

// Findings are written at once when they change, with the rest of their sample. Their excess is written at the
// rate of the use.
func TestFindingsAreWrittenAtOnce(t *testing.T) {
	w := &Writer{}
	report := func(after time.Duration, excess int64, pods ...string) Report {
		r := newUseReport(testNow.Add(after), testNow, 1000)
		use := r.Use.Pods["u"]
		use.ShareMiB, use.LimitMiB = 800, 900
		r.Use.Pods["u"] = use
		for _, pod := range pods {
			r.Use.Findings = append(r.Use.Findings, v1alpha1.Finding{
				PodUID: types.UID(pod), Reason: v1alpha1.FindingShareExceeded, Device: "GPU-0", ExcessMiB: excess, Since: metav1.NewTime(testNow),
			})
		}
		return r
	}
	first := w.mergeStatus(&v1alpha1.GPUNodeStatus{}, report(0, 200, "u"), testNow)
	if len(first.Findings) != 1 || first.Pods[0].ShareMiB != 800 || first.Pods[0].LimitMiB != 900 {
		t.Fatalf("%+v", first)
	}
	for name, tt := range map[string]struct {
		report Report
		want   bool
	}{
		"the same finding":        {report(time.Second, 200, "u"), false},
		"another excess":          {report(time.Second, 5000, "u"), false},
		"another finding":         {report(time.Second, 200, "u", "v"), true},
		"no finding":              {report(time.Second, 0), true},
		"another pod's":           {report(time.Second, 200, "v"), true},
		"an excess, later":        {report(50*time.Second, 5000, "u"), true},
		"thousands of findings":   {report(time.Second, 200, slices.Repeat([]string{"v"}, 5000)...), true},
		"a share that is unknown": {newUseReport(testNow.Add(30*time.Second), testNow, 1000), true},
	} {
		next := w.mergeStatus(first, tt.report, testNow)
		if got := !next.SampledAt.Equal(first.SampledAt); got != tt.want {
			t.Errorf("%s: written is %v", name, got)
		}
		if !tt.want && next.Findings[0].ExcessMiB != 200 || len(next.Findings) > maxFindings {
			t.Errorf("%s: %d findings", name, len(next.Findings))
		}
	}
	if lost := w.mergeStatus(first, Report{Conditions: nil}, testNow); len(lost.Findings) != 1 || !lost.SampledAt.Equal(first.SampledAt) {
		t.Errorf("without a driver the last sample is %+v", lost)
	}
}

// The processes outside of pods are written with the use and never alone, the largest first, and bounded.
func TestOtherProcesses(t *testing.T) {
	const uuid = "GPU-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f30"
	w := &Writer{}
	report := func(after time.Duration, processes ...utilization.Process) Report {
		r := newUseReport(testNow.Add(after), testNow, 1000)
		r.GPUs = []v1alpha1.ObservedGPU{{UUID: uuid}}
		r.Use.Devices = []utilization.Device{
			{UUID: "MIG-1", GPU: uuid, Processes: processes},
			{UUID: "MIG-2", GPU: uuid, Processes: []utilization.Process{{PID: 1, Pod: "u", MemoryMiB: 9000}}},
			{UUID: "MIG-3", GPU: "GPU-other", Processes: []utilization.Process{newOtherProcess(2, 9000)}},
		}
		return r
	}
	first := w.mergeStatus(&v1alpha1.GPUNodeStatus{}, report(0, newOtherProcess(7, nvml.UnknownMiB), newOtherProcess(9, 10), newOtherProcess(8, 10)), testNow)
	want := []v1alpha1.OtherProcess{
		{PID: 8, Name: "python3", Kind: v1alpha1.OtherHost, MemoryMiB: ptr.To[int64](10)},
		{PID: 9, Name: "python3", Kind: v1alpha1.OtherHost, MemoryMiB: ptr.To[int64](10)},
		{PID: 7, Name: "python3", Kind: v1alpha1.OtherHost},
	}
	if diff := cmp.Diff(want, first.GPUs[0].OtherProcesses); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var many []utilization.Process
	for pid := range uint32(100) {
		many = append(many, newOtherProcess(pid, int64(pid)))
	}
	if soon := report(49*time.Second, many...); !w.isUnchanged(first, soon, testNow) {
		t.Errorf("other processes alone are written: %+v", w.mergeStatus(first, soon, testNow).GPUs[0])
	}
	later := w.mergeStatus(first, report(50*time.Second, many...), testNow).GPUs[0]
	if len(later.OtherProcesses) != maxOtherProcesses || later.OtherProcessesOmitted != 84 || later.OtherProcesses[0].PID != 99 {
		t.Errorf("of 100 processes %d are listed and %d omitted: %+v", len(later.OtherProcesses), later.OtherProcessesOmitted, later.OtherProcesses)
	}
	if gone := w.mergeStatus(first, report(50*time.Second), testNow).GPUs[0]; len(gone.OtherProcesses) != 0 || gone.OtherProcessesOmitted != 0 {
		t.Errorf("processes that ended stay: %+v", gone)
	}
	unknown := report(time.Hour)
	unknown.Use = nil
	if !w.isUnchanged(first, unknown, testNow) {
		t.Error("without a sample the processes change")
	}
}

func newOtherProcess(pid uint32, memoryMiB int64) utilization.Process {
	other := &v1alpha1.OtherProcess{PID: int64(pid), Name: "python3", Kind: v1alpha1.OtherHost}
	return utilization.Process{PID: pid, MemoryMiB: memoryMiB, Other: other}
}
