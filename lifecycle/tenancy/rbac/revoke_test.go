// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

// The RoleBindings of a deleted project end although a finalizer holds them: while one exists, it is in force. What they
// own stays, since that could be a volume claim. Guards invariant 4 and "volumes are never deleted".
func TestRevokedBindingsAreNotHeld(t *testing.T) {
	now := metav1.Now()
	binding := func(name string, change func(*rbacv1.RoleBinding)) client.Object {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: now}}
		change(b)
		return b
	}
	held := func(b *rbacv1.RoleBinding) { b.Finalizers = []string{"example.org/hold"} }
	w := newFixture(t, binding("plain", func(*rbacv1.RoleBinding) {}), binding("held", held),
		binding("deleted-and-held", func(b *rbacv1.RoleBinding) { held(b); b.DeletionTimestamp = &now }),
		binding("ending", func(b *rbacv1.RoleBinding) {
			b.Finalizers, b.DeletionTimestamp = []string{metav1.FinalizerOrphanDependents}, &now
		}),
		binding("older", func(b *rbacv1.RoleBinding) { held(b); b.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour)) }),
		// Administrators create the namespace, its bindings and the project with one command.
		binding("same-second", func(b *rbacv1.RoleBinding) { b.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }))
	deletes := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			applied := (&client.DeleteOptions{}).ApplyOptions(options)
			if policy := applied.PropagationPolicy; policy == nil || *policy != metav1.DeletePropagationOrphan {
				t.Errorf("%s is deleted with what it owns", object.GetName())
			}
			return c.Delete(ctx, object, options...)
		},
	})
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	for range 2 {
		if err := (&Manager{Client: deletes, Live: deletes}).RevokeNamespace(t.Context(), project, "ns"); err != nil {
			t.Fatal(err)
		}
	}
	var left rbacv1.RoleBindingList
	if err := w.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"ending", "older", "same-second"}, names); diff != "" {
		t.Errorf("role bindings (-want +got):\n%s", diff)
	}
}
