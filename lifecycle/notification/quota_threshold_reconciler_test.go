// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
)

// The condition follows the use with hysteresis. A Notice is recorded only while work is pending for
// the nearly used pool, once a day; a crash between Notice and status causes no second one.
func TestQuotaThresholdNeedsPendingWork(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	steps := []struct {
		after       time.Duration
		allocated   string
		unscheduled string
		pending     string // of the nearly used pool
		waits       bool   // the condition Pending
		nearly      bool
		notices     int
	}{
		{hour, "8900m", "0", "2", true, false, 0},
		{hour, "9", "0", "0", false, true, 0},
		{hour, "10", "0", "0", true, true, 0},  // for another pool
		{hour, "10", "0", "1", false, true, 0}, // for a node, not for quota
		{hour, "10", "0", "1", true, true, 1},
		{hour, "8", "0", "1", true, true, 1},
		{hour, "7999m", "0", "0", false, false, 1},
		{hour, "9", "0", "2", true, true, 1},
		{day, "9", "0", "2", true, true, 2},
		{hour, "9", "0", "2", true, true, 2},
		{7 * day, "10", "0", "0", false, true, 2},
		{hour, "10", "0", "500m", true, true, 3},
		// Pods without a node count, as in the quota.
		{7 * day, "2", "5900m", "5900m", true, false, 3},
		{hour, "2", "7", "8", true, true, 4},
	}
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			project := &v1alpha1.Project{
				ObjectMeta: metav1.ObjectMeta{Name: "lab", UID: "first"},
				Spec: v1alpha1.ProjectSpec{
					Department: "students", Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}}},
				},
			}
			raw := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Project{}, &v1alpha1.Notice{}).
				WithTypeConverters(applyconfiguration.NewTypeConverter(scheme), managedfields.NewDeducedTypeConverter()).
				WithObjects(project, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}).Build()
			dies := false
			c := interceptor.NewClient(raw, interceptor.Funcs{
				SubResourceApply: func(
					ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
				) error {
					if dies = !dies; crash && dies {
						return errors.New("the process died here")
					}
					return c.SubResource(sub).Apply(ctx, o, opts...)
				},
			})
			r := &QuotaThresholdReconciler{Client: c, Notices: Recorder{Client: c, Live: c}, Clock: policytime.System()}
			for i, step := range steps {
				time.Sleep(step.after)
				if err := raw.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
					t.Fatal(err)
				}
				project.Status.NodePools = []v1alpha1.PoolUsage{
					{Name: "empty"},
					{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{
						Limit: resource.MustParse("10"), Allocated: resource.MustParse(step.allocated), Pending: resource.MustParse(step.pending),
					}, Unscheduled: resource.MustParse(step.unscheduled)},
				}
				waits := metav1.Condition{Type: v1alpha1.ConditionPending, Status: metav1.ConditionFalse, Reason: "Test"}
				if step.waits {
					waits.Status = metav1.ConditionTrue
				}
				meta.SetStatusCondition(&project.Status.Conditions, waits)
				if err := raw.Status().Update(t.Context(), project); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(project)})
					if err != nil && !crash {
						t.Fatal(err)
					}
				}
				if err := raw.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
					t.Fatal(err)
				}
				var notices v1alpha1.NoticeList
				if err := raw.List(t.Context(), &notices); err != nil {
					t.Fatal(err)
				}
				if got := meta.IsStatusConditionTrue(project.Status.Conditions, v1alpha1.ConditionQuotaNearlyUsed); got != step.nearly ||
					len(notices.Items) != step.notices {
					t.Fatalf("step %d (%s): nearly used %v, %d notices; want %v, %d", i, step.allocated, got, len(notices.Items), step.nearly, step.notices)
				}
			}
		})
	}
}
