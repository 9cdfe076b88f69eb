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

// The Notice is recorded once until the use has fallen well below; a crash between Notice and status
// causes no second one.
func TestQuotaThresholdRecordedOnce(t *testing.T) {
	steps := []struct {
		allocated string
		nearly    bool
		notices   int
	}{
		{"8900m", false, 0},
		{"9", true, 1},
		{"10", true, 1},
		{"8", true, 1},
		{"9500m", true, 1},
		{"7999m", false, 1},
		{"8500m", false, 1},
		{"9", true, 2},
		{"0", false, 2},
		{"10", true, 3},
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
				time.Sleep(time.Minute)
				if err := raw.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
					t.Fatal(err)
				}
				project.Status.NodePools = []v1alpha1.PoolUsage{
					{Name: "empty"},
					{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("10"), Allocated: resource.MustParse(step.allocated)}},
				}
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
