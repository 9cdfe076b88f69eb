// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// A stale clock must not be announced: with a limit that is lowered twice, a cache that lags
// behind would announce both.
func TestStaleCacheRecordsNoNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		start := waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(10 * time.Hour)
		old := c.listClocks()[0]
		var department v1alpha1.Department
		if err := c.rawClient.Get(t.Context(), client.ObjectKey{Name: "students"}, &department); err != nil {
			t.Fatal(err)
		}
		limits := department.Spec.Workloads[v1alpha1.AnyWorkload]
		limits.MaxRuntime = ptr.To(period.MustParseDuration("12h"))
		department.Spec.Workloads[v1alpha1.AnyWorkload] = limits
		if err := c.rawClient.Update(t.Context(), &department); err != nil {
			t.Fatal(err)
		}
		c.advance(0)
		notices, calls := c.noticeTexts(start), c.calls
		time.Sleep(time.Second)
		c.reconciler.Client = interceptor.NewClient(c.rawClient, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if clock, ok := o.(*v1alpha1.WorkloadClock); ok {
					old.DeepCopyInto(clock)
					return nil
				}
				return w.Get(ctx, key, o, opts...)
			},
		})
		_, err := c.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&old)})
		if !apierrors.IsConflict(err) {
			t.Errorf("with a stale cache: %v, want a conflict", err)
		}
		if after := c.noticeTexts(start); len(after) != len(notices) || c.calls != calls {
			t.Errorf("notices were %v, and now %v", notices, after)
		}
	})
}

// A workload whose pods are resolved between two reads of one reconciliation, as at a start of lifecycle, is not
// taken as ended. Guards invariant 11 of the design: a start changes nothing.
func TestPodsResolvedDuringAReconciliationKeepTheirClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(10 * time.Hour)
		before := c.listClocks()[0]
		c.restart()
		pod := c.pods["train-1"]
		c.workloads.handlePodChange(podcache.Change{After: pod})
		c.reconciler.Client = interceptor.NewClient(c.rawClient, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*v1alpha1.WorkloadClock); ok {
					if _, err := c.workloads.reconcileOwner(ctx, directOwnerOf(pod)); err != nil {
						t.Error(err)
					}
				}
				return w.Get(ctx, key, o, opts...)
			},
		})
		if _, err := c.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&before)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, c.listClocks()[0]); diff != "" {
			t.Errorf("the clock changed:\n%s", diff)
		}
	})
}

// A workload in a namespace without project keeps running. Its clock pauses, and continues
// when a project has the namespace again.
func TestClockPausesWithoutProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(40 * time.Hour)
		var project v1alpha1.Project
		if err := c.rawClient.Get(t.Context(), client.ObjectKey{Name: testNamespace}, &project); err != nil {
			t.Fatal(err)
		}
		has := project.Status.Namespace
		project.Status.Namespace = nil
		if err := c.rawClient.Update(t.Context(), &project); err != nil {
			t.Fatal(err)
		}
		c.advance(30 * time.Minute)
		s := c.listClocks()[0].Status
		if s.State != v1alpha1.ClockStatePaused || s.RunningSince != nil || s.Deadline != nil || s.AccumulatedSeconds != 40*60*60 {
			t.Errorf("without project: %s, %d s, %v", s.State, s.AccumulatedSeconds, s.Deadline)
		}
		if counts, err := c.reconciler.StopLimiter.countStops(t.Context(), time.Now()); len(counts) > 0 || err != nil {
			t.Errorf("the stop limiter counts %v, %v", counts, err)
		}
		writes := c.calls
		c.advance(20 * time.Minute)
		if c.calls != writes {
			t.Errorf("%d writes without project", c.calls-writes)
		}
		project.Status.Namespace, project.CreationTimestamp = has, metav1.Now() // another project
		if err := c.rawClient.Update(t.Context(), &project); err != nil {
			t.Fatal(err)
		}
		c.advance(8*time.Hour - time.Second)
		if ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Error("it was stopped although its clock was paused")
		}
		c.advance(2 * time.Second)
		if !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Error("it still runs")
		}
	})
}
