// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// It guards that nobody is told what follows from a clock that is not the latest:
// with a limit that is cut twice, a cache that lags would announce both.
func TestNobodyIsToldByAnOldCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		start := wholeSecond()
		c.run("train", "-1")
		c.live(10 * time.Hour)
		old := c.clocks()[0]
		var department v1alpha1.Department
		if err := c.raw.Get(t.Context(), client.ObjectKey{Name: "students"}, &department); err != nil {
			t.Fatal(err)
		}
		limits := department.Spec.Workloads[v1alpha1.AnyWorkload]
		limits.MaxRuntime = ptr.To(period.MustParseDuration("12h"))
		department.Spec.Workloads[v1alpha1.AnyWorkload] = limits
		if err := c.raw.Update(t.Context(), &department); err != nil {
			t.Fatal(err)
		}
		c.live(0)
		told, calls := c.told(start), c.calls
		time.Sleep(time.Second)
		c.r.Client = interceptor.NewClient(c.raw, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if clock, ok := o.(*v1alpha1.WorkloadClock); ok {
					old.DeepCopyInto(clock)
					return nil
				}
				return w.Get(ctx, key, o, opts...)
			},
		})
		_, err := c.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&old)})
		if !apierrors.IsConflict(err) {
			t.Errorf("with an old cache: %v, want a conflict", err)
		}
		if again := c.told(start); len(again) != len(told) || c.calls != calls {
			t.Errorf("told was %v, and now %v", told, again)
		}
	})
}
