// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

const gpuHour = 3600 * 1000 // of one GPU, in thousandths of a GPU times seconds

// trainUse returns the usage of the Job's pod. A negative memory is an unknown one.
func trainUse(memory int64, lastActive time.Time) v1alpha1.PodUsage {
	use := v1alpha1.PodUsage{
		PodReference: v1alpha1.PodReference{UID: "train-1", Namespace: testNamespace, Name: "train-1"}, Devices: []string{"GPU-1"}, ShareMiB: 40960,
	}
	if memory >= 0 {
		use.MemoryMiB = &memory
	}
	if !lastActive.IsZero() {
		use.LastActive = ptr.To(metav1.NewTime(lastActive).Rfc3339Copy())
	}
	return use
}

// alwaysActive is a PodActivity that measured every pod as active.
type alwaysActive struct{}

func (alwaysActive) ActivityOf(_ types.UID, from, to time.Time) (active, idle time.Duration) {
	return to.Sub(from), 0
}

// newUsageCluster returns a cluster that counts the writes of clocks.
func newUsageCluster(t *testing.T) (c *fakeCluster, writes *int) {
	t.Helper()
	job := newJob("train")
	job.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "anna"}
	c = newFakeCluster(t, job)
	c.reconciler.Activity = alwaysActive{}
	c.maxSleep = 30 * time.Second // as agents write samples
	writes = new(int)
	c.onWrite = func(o client.Object) {
		if _, ok := o.(*v1alpha1.WorkloadClock); ok {
			*writes++
		}
	}
	waitForWholeSecond()
	c.startPod("train", "-1")
	return c, writes
}

// A clock has the latest sample of its pods, and is written for it at most every five minutes. Guards the
// target that nothing is written when nothing changes.
func TestGPUUsageIsWrittenRarely(t *testing.T) {
	for name, tc := range map[string]struct {
		use func(start time.Time) v1alpha1.PodUsage
		// writes are the most writes in two hours.
		writes int
	}{
		"busy": {func(time.Time) v1alpha1.PodUsage { return trainUse(1000, time.Now()) }, 24},
		"more memory": {func(start time.Time) v1alpha1.PodUsage {
			return trainUse(1000+int64(time.Since(start)/time.Second), start)
		}, 24},
		"less than 5%": {func(time.Time) v1alpha1.PodUsage { return trainUse(1000+time.Now().Unix()/30%2*40, time.Time{}) }, 2},
		"idle":         {func(start time.Time) v1alpha1.PodUsage { return trainUse(1000, start) }, 3}, // the idle time begins in between
		"unknown":      {func(time.Time) v1alpha1.PodUsage { return trainUse(-1, time.Time{}) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, writes := newUsageCluster(t)
				start := time.Now()
				c.beforeReconcile = func() { c.writeDevices(tc.use(start)) }
				c.advance(10 * time.Minute)
				*writes = 0
				c.advance(2 * time.Hour)
				if *writes > tc.writes {
					t.Errorf("%d writes in two hours, want at most %d", *writes, tc.writes)
				}
				u := c.clockOf("train").Status.GPUUsage
				want := tc.use(start)
				if u == nil || ptr.Deref(u.ShareMiB, 0) != 40960 || (u.MemoryMiB == nil) != (want.MemoryMiB == nil) || (u.LastActive == nil) != (want.LastActive == nil) {
					t.Errorf("the clock has %+v", u)
				}
			})
		})
	}
}

// Without samples the clock is not written at all, and the figures are unknown.
func TestGPUUsageWithoutSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newUsageCluster(t)
		c.advance(10 * time.Minute)
		calls := c.calls
		c.advance(12 * time.Hour)
		if c.calls != calls {
			t.Errorf("%d writes while nothing changes", c.calls-calls)
		}
		u := c.clockOf("train").Status.GPUUsage
		if u == nil || u.MemoryMiB != nil || u.ShareMiB != nil || u.LastActive != nil || u.SampledAt != nil {
			t.Errorf("the clock has %+v", u)
		}
	})
}

// An agent that is lost makes the figures unknown, and they stay so while it is.
func TestGPUUsageOfLostAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newUsageCluster(t)
		c.beforeReconcile = func() { c.writeDevices(trainUse(1000, time.Now())) }
		c.advance(20 * time.Minute)
		if u := c.clockOf("train").Status.GPUUsage; !u.LastActive.Equal(u.SampledAt) || *u.MemoryMiB != 1000 {
			t.Errorf("the clock of a busy pod has %+v", u)
		}
		c.beforeReconcile = func() {}
		c.advance(20 * time.Minute)
		if u := c.clockOf("train").Status.GPUUsage; u.LastActive != nil || u.MemoryMiB != nil || u.SampledAt != nil {
			t.Errorf("without an agent the clock has %+v", u)
		}
	})
}

// sumOfDays returns the GPU time of a clock.
func sumOfDays(u *v1alpha1.ClockGPUUsage) (sum v1alpha1.ClockGPUDay) {
	for _, d := range u.Days {
		sum.GPUMilliSeconds += d.GPUMilliSeconds
		sum.UsedGPUMilliSeconds += d.UsedGPUMilliSeconds
		sum.IdleGPUMilliSeconds += d.IdleGPUMilliSeconds
	}
	return sum
}

// The days of a clock count each second once: over restarts of lifecycle, with pods that come and go, and
// after the workload was created again.
func TestGPUTimeCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newUsageCluster(t)
		c.advance(time.Hour)
		c.startPod("train", "-2")
		c.advance(time.Hour)
		c.restart()
		c.reconciler.Activity = alwaysActive{}
		c.advance(time.Hour)
		delete(c.pods, "train-1")
		c.advance(time.Hour)
		delete(c.pods, "train-2")
		c.advance(3 * time.Hour)
		u := c.clockOf("train").Status.GPUUsage
		if sum := sumOfDays(u); sum.GPUMilliSeconds != 6*gpuHour || sum.UsedGPUMilliSeconds != 6*gpuHour {
			t.Errorf("two pods of three hours counted as %+v", sum)
		}
		if len(c.reconciler.heldPods.clocks) > 0 {
			t.Errorf("held pods of a workload without pods: %v", c.reconciler.heldPods.clocks)
		}
		c.startPod("train", "-3")
		c.advance(time.Hour)
		delete(c.pods, "train-3")
		c.advance(time.Minute)
		if sum := sumOfDays(c.clockOf("train").Status.GPUUsage); sum.GPUMilliSeconds != 7*gpuHour {
			t.Errorf("after another hour it is %+v", sum)
		}
	})
}

// A pod that ended while lifecycle was away counts until lifecycle returned, as in the running time. What it
// used then was not measured.
func TestGPUTimeOfPodThatEndedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newUsageCluster(t)
		c.startPod("train", "-2")
		c.advance(time.Hour)
		c.restart()
		c.reconciler.Activity = alwaysActive{}
		delete(c.pods, "train-1")
		time.Sleep(time.Hour)
		c.advance(time.Minute)
		delete(c.pods, "train-2")
		c.advance(time.Minute)
		sum := sumOfDays(c.clockOf("train").Status.GPUUsage)
		if unseen := sum.GPUMilliSeconds - sum.UsedGPUMilliSeconds; sum.GPUMilliSeconds < 4*gpuHour || sum.GPUMilliSeconds > 4*gpuHour+gpuHour/10 || unseen < gpuHour {
			t.Errorf("it counted %+v", sum)
		}
	})
}

// A crash at any write loses no time, and counts none twice.
func TestGPUTimeSurvivesCrashes(t *testing.T) {
	for _, after := range []bool{false, true} {
		for at := 1; at <= 6; at++ {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newUsageCluster(t)
				c.crashAt, c.crashAfterWrite = at, after
				c.advance(time.Hour)
				c.startPod("train", "-2")
				c.advance(time.Hour)
				delete(c.pods, "train-2")
				c.advance(time.Hour)
				s := c.clockOf("train").Status
				sum := sumOfDays(s.GPUUsage).GPUMilliSeconds + s.GPUs.MilliValue()*int64(time.Since(s.GPUUsage.CountedUntil.Time)/time.Second)
				if diff := sum - 4*gpuHour; diff < -gpuHour/100 || diff > gpuHour/100 {
					t.Errorf("crash at write %d, after it: %v: it counted %d, want %d", at, after, sum, 4*gpuHour)
				}
			})
		}
	}
}

// Another user's workload of the same name does not count the former user's time.
func TestGPUTimeOfAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newUsageCluster(t)
		c.advance(time.Hour)
		delete(c.pods, "train-1")
		c.advance(time.Minute)
		ctx := context.Background()
		if err := c.rawClient.Delete(ctx, c.getJob("train")); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Minute)
		job := newJob("train")
		job.UID, job.Annotations = "second-uid", map[string]string{v1alpha1.AnnotationCreatedBy: "ben"}
		job.CreationTimestamp = metav1.Now()
		if err := c.rawClient.Create(ctx, job); err != nil {
			t.Fatal(err)
		}
		c.startPod("train", "-2")
		c.pods["train-2"].Controller.UID = "second-uid"
		c.advance(time.Hour)
		delete(c.pods, "train-2")
		c.advance(time.Minute)
		s := c.clockOf("train").Status
		if s.CreatedBy != "ben" {
			t.Fatalf("the clock counts for %q", s.CreatedBy)
		}
		if sum := sumOfDays(s.GPUUsage); sum.GPUMilliSeconds != gpuHour {
			t.Errorf("ben's hour counted as %+v", sum)
		}
	})
}
