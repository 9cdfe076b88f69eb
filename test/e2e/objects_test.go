// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// project is a valid one of the sample's department h2-students.
func project(name string, change ...func(*v1alpha1.Project)) *v1alpha1.Project {
	p := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProjectSpec{
			Department: "h2-students",
			Owners:     []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Owner", Email: "owner@example.org"}}},
			NodePools:  []v1alpha1.PoolQuota{{Name: "dgx-mig", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("1")}}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func in(namespace string) func(*v1alpha1.Project) {
	return func(p *v1alpha1.Project) { p.Spec.Namespace = namespace }
}

func namespace(name string, annotations ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// create makes the object and sees to it that it is gone after the test.
func create[T client.Object](t testing.TB, object T) T {
	t.Helper()
	if err := shared.admin.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() { remove(t, object) })
	return object
}

// remove deletes the object and waits until it is gone.
func remove(t testing.TB, object client.Object) {
	t.Helper()
	ctx := context.Background() // a clean-up's test context has ended
	if err := shared.admin.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		return
	}
	eventually(t, func() error { return gone(ctx, object) })
}

func gone(ctx context.Context, object client.Object) error {
	err := shared.admin.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s is still there", object, object.GetName())
	}
	return err
}

// get reads the object anew.
func get(t *testing.T, object client.Object) error {
	return shared.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object)
}

// hasCondition tells whether the condition is there as wanted.
func hasCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || (reason != "" && c.Reason != reason) {
		return fmt.Errorf("condition %s = %+v, want %s %s", kind, c, status, reason)
	}
	return nil
}

// awaitReady waits until the project is ready.
func awaitReady(t *testing.T, p *v1alpha1.Project) {
	t.Helper()
	eventually(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	})
}

// errNotYet says what is waited for, and what there is instead.
func errNotYet(want string, got any) error {
	return fmt.Errorf("want that %s; got %v", want, got)
}
