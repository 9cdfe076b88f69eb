// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"math"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

func gpuDay(date string, requested, used, idle int64) v1alpha1.ClockGPUDay {
	return v1alpha1.ClockGPUDay{Date: date, GPUMilliSeconds: requested, UsedGPUMilliSeconds: used, IdleGPUMilliSeconds: idle}
}

// sampleCountedClocks returns clocks of two users at clocksNow, 2026-10-24 22:00.
func sampleCountedClocks() []v1alpha1.WorkloadClock {
	counted := func(namespace, kind, name, user, gpus string, days ...v1alpha1.ClockGPUDay) v1alpha1.WorkloadClock {
		s := v1alpha1.WorkloadClockStatus{
			CreatedBy: user, State: v1alpha1.ClockStateFinished, WorkloadType: v1alpha1.WorkloadTrain,
			GPUUsage: &v1alpha1.ClockGPUUsage{CountedUntil: clockTime(-30 * time.Minute), Days: days},
		}
		if gpus != "" {
			s.GPUs, s.State = ptr.To(resource.MustParse(gpus)), v1alpha1.ClockStateRunning
		}
		return newClock(namespace, kind, name, s)
	}
	inherited := counted("thesis", "Job", "by-ci", "system:serviceaccount:thesis:ci", "", gpuDay("2026-10-20", gpuHour, 0, gpuHour))
	inherited.Status.InheritedFrom = "anna"
	return []v1alpha1.WorkloadClock{
		// 26 days ago counts, 30 days ago does not.
		counted("thesis", "Job", "train", "anna", "", gpuDay("2026-09-24", 90*gpuHour, 0, 0), gpuDay("2026-09-25", 2*gpuHour, gpuHour, gpuHour/2)),
		counted("thesis", "Pod", "notebook", "anna", "500m", gpuDay("2026-10-24", gpuHour, gpuHour/4, 3*gpuHour/4)),
		counted("thesis", "Job", "unmeasured", "anna", "", gpuDay("2026-10-01", 7*gpuHour, 0, 0)),
		counted("thesis", "Job", "new", "anna", "2"),
		counted("thesis", "Job", "of-ben", "ben", "1", gpuDay("2026-10-24", gpuHour, 0, 0)),
		counted("lab", "Ev\x1b[2Jil", "a\nb", "anna", "", gpuDay("2026-10-24", 1, 1, 0)),
		newClock("thesis", "Job", "waits", v1alpha1.WorkloadClockStatus{CreatedBy: "anna", State: v1alpha1.ClockStatePending}),
		inherited,
	}
}

func TestOwnUsageOutput(t *testing.T) {
	for name, tc := range map[string]struct {
		user, namespace string
		clocks          []v1alpha1.WorkloadClock
	}{
		"own":            {"anna", "thesis", sampleCountedClocks()[:5]},
		"own-everywhere": {"anna", "", sampleCountedClocks()},
		"own-none":       {"\x1b[2Jcarla", "thesis", sampleCountedClocks()},
	} {
		usage := newOwnUsage(clockList{namespace: tc.namespace, clocks: tc.clocks, projects: sampleProjects}, tc.user, clocksNow)
		var text bytes.Buffer
		if err := usage.write(&text); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, text.String(), "usage/"+name+".txt")
		golden.Assert(t, jsonText(t, usage), "usage/"+name+".json")
	}
}

// Figures that no controller writes neither overflow nor count as negative.
func TestOwnUsageBoundsFigures(t *testing.T) {
	hostile := &v1alpha1.WorkloadClockStatus{
		GPUs: resource.NewQuantity(math.MaxInt64, resource.DecimalSI),
		GPUUsage: &v1alpha1.ClockGPUUsage{
			CountedUntil: &metav1.Time{},
			Days:         []v1alpha1.ClockGPUDay{gpuDay("2026-10-24", math.MaxInt64, math.MaxInt64, -5), gpuDay("9999-99-99", math.MaxInt64, math.MaxInt64, math.MaxInt64)},
		},
	}
	sum := gpuTimeSince(hostile, clocksNow.AddDate(0, 0, -29), clocksNow)
	if sum.GPUMilliSeconds != math.MaxInt64 || *sum.Used != math.MaxInt64 || *sum.Idle != math.MaxInt64 || sum.cells()[2] != "" {
		t.Errorf("the sum is %d, used %d, idle %d: %v", sum.GPUMilliSeconds, *sum.Used, *sum.Idle, sum.cells())
	}
	negative := &v1alpha1.WorkloadClockStatus{
		GPUs:     resource.NewQuantity(-1, resource.DecimalSI),
		GPUUsage: &v1alpha1.ClockGPUUsage{CountedUntil: clockTime(-time.Hour), Days: []v1alpha1.ClockGPUDay{gpuDay("2026-10-24", -1, -1, -1)}},
	}
	if sum := gpuTimeSince(negative, clocksNow.AddDate(0, 0, -29), clocksNow); sum.GPUMilliSeconds != 0 || sum.Used != nil {
		t.Errorf("the sum of negative figures is %+v", sum)
	}
	ahead := &v1alpha1.WorkloadClockStatus{GPUs: resource.NewQuantity(1, resource.DecimalSI), GPUUsage: &v1alpha1.ClockGPUUsage{CountedUntil: clockTime(time.Hour)}}
	if sum := gpuTimeSince(ahead, clocksNow.AddDate(0, 0, -29), clocksNow); sum.GPUMilliSeconds != 0 {
		t.Errorf("a clock that is ahead of this machine counts %d", sum.GPUMilliSeconds)
	}
}
