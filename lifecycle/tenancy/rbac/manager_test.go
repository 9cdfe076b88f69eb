// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/lifecycle/rendering/apply"
)

// fixture is a cluster with a project, its department and its governed namespace, in
// which the writes are counted.
type fixture struct {
	t *testing.T
	client.Client
	writes int
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	p := newProject("anna l2-researcher")
	p.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "ns", UID: "ns-1"}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "ns-1", Labels: map[string]string{v1alpha1.LabelProject: "thesis"}}}
	objects = append(objects, p, ns, newDepartment("dean department-administrator"))
	w := &fixture{t: t}
	w.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Project{}, &v1alpha1.Department{}).
		WithTypeConverters(applyconfiguration.NewTypeConverter(kinds), clientgoac.NewTypeConverter(clientgoscheme.Scheme)).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				w.writes++
				return c.Apply(ctx, object, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				w.writes++
				return c.Delete(ctx, object, options...)
			},
		}).Build()
	return w
}

// reconcileUntilStable reconciles both until nothing is written, and returns the
// bindings.
func (w *fixture) reconcileUntilStable() []string {
	w.t.Helper()
	manager := Manager{Client: w.Client, Live: w.Client}
	for range 5 {
		w.writes = 0
		for name, r := range map[string]reconcile.Reconciler{"thesis": &ProjectReconciler{manager}, "students": &DepartmentReconciler{manager}} {
			if _, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
				w.t.Fatal(err)
			}
		}
		if w.writes == 0 {
			all, err := listManaged(w.t.Context(), w.Client, apply.ManagedLabels())
			if err != nil {
				w.t.Fatal(err)
			}
			grants := describeGrants(all)
			slices.Sort(grants)
			return grants
		}
	}
	w.t.Fatal("the writes do not end")
	return nil
}

// updateObject reads an object, changes it and writes it.
func updateObject[T client.Object](w *fixture, object T, do func(T)) {
	w.t.Helper()
	if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	do(object)
	if err := w.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

var expectedBindings = []string{
	"ns/sluice:department-administrator: sluice:department-administrator to User dean",
	"ns/sluice:l2-researcher: sluice:l2-researcher to User anna",
	"sluice:department:students is to get departments students",
	"sluice:department:students: sluice:department:students to User dean",
	"sluice:department:students:administrators is to administer departments/projects students",
	"sluice:department:students:administrators: sluice:department:students:administrators to User dean",
	"sluice:department:students:project-writers: sluice:project-writer to User dean",
	"sluice:project:thesis is to get projects thesis",
	"sluice:project:thesis: sluice:project:thesis to User anna, User dean",
}

func newResearcherBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sluice:l2-researcher"}}
}

// listManaged returns all roles and bindings with the labels.
func listManaged(ctx context.Context, reader client.Reader, labels map[string]string) ([]client.Object, error) {
	var all []client.Object
	for _, kind := range kinds {
		objects := kind.NewList()
		if err := reader.List(ctx, objects, client.MatchingLabels(labels)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			all = append(all, item.(client.Object))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func TestBindingsAreRestored(t *testing.T) {
	tests := map[string]func(*fixture){
		"as they are": func(*fixture) {},
		"a further subject": func(w *fixture) {
			updateObject(w, newResearcherBinding(), func(b *rbacv1.RoleBinding) {
				b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mallory"})
			})
		},
		"deleted": func(w *fixture) {
			if err := w.Delete(w.t.Context(), newResearcherBinding()); err != nil {
				w.t.Fatal(err)
			}
		},
		"the label removed": func(w *fixture) {
			updateObject(w, newResearcherBinding(), func(b *rbacv1.RoleBinding) { delete(b.Labels, v1alpha1.LabelProject) })
		},
		"another role bound": func(w *fixture) {
			updateObject(w, newResearcherBinding(), func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "cluster-admin" })
		},
		"a wider rule": func(w *fixture) {
			updateObject(w, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sluice:project:thesis"}}, func(r *rbacv1.ClusterRole) { r.Rules[0].ResourceNames = nil })
		},
		"a forged one": func(w *fixture) {
			forged := newRoleBinding("elsewhere", "sluice:editor", projectLabels("thesis"), parseMembers("mallory editor"))
			if err := w.Create(w.t.Context(), forged); err != nil {
				w.t.Fatal(err)
			}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.reconcileUntilStable()
			change(w)
			if diff := cmp.Diff(expectedBindings, w.reconcileUntilStable()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestBindingsAreRemoved(t *testing.T) {
	without := func(gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(expectedBindings), func(s string) bool {
			return slices.ContainsFunc(gone, func(part string) bool { return strings.Contains(s, part) })
		})
	}
	thesis := func() *v1alpha1.Project { return &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}} }
	tests := map[string]struct {
		do   func(*fixture)
		want []string
	}{
		"with the member": {
			func(w *fixture) { updateObject(w, thesis(), func(p *v1alpha1.Project) { p.Spec.Members = nil }) },
			append(without("anna"), "sluice:project:thesis: sluice:project:thesis to User dean"),
		},
		"with the department, after a move": {
			func(w *fixture) {
				updateObject(w, thesis(), func(p *v1alpha1.Project) { p.Spec.Department = "research" })
			},
			append(without("ns/sluice:department-administrator", "anna, User dean"), "sluice:project:thesis: sluice:project:thesis to User anna"),
		},
		"with governance": {
			func(w *fixture) {
				updateObject(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, func(n *corev1.Namespace) { n.Labels = nil })
			},
			without("ns/"),
		},
		"with the project": {
			func(w *fixture) {
				if err := w.Delete(w.t.Context(), thesis()); err != nil {
					w.t.Fatal(err)
				}
			},
			without("thesis", "ns/"),
		},
		"first, when the project is released": {
			func(w *fixture) {
				k := Manager{Client: w.Client, Live: w.Client}
				for range 2 {
					if err := k.Revoke(w.t.Context(), thesis()); err != nil {
						w.t.Fatal(err)
					}
				}
				all, err := listManaged(w.t.Context(), w.Client, projectLabels("thesis"))
				if len(all) > 0 || err != nil {
					w.t.Errorf("left are %q, %v", describeGrants(all), err)
				}
			},
			expectedBindings, // the project is not being deleted here
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.reconcileUntilStable()
			tc.do(w)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, w.reconcileUntilStable()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestForeignBindingIsPreserved(t *testing.T) {
	foreign := newResearcherBinding()
	foreign.RoleRef = newRoleRef("view")
	w := newFixture(t, foreign)
	w.reconcileUntilStable()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || foreign.RoleRef.Name != "view" || len(foreign.Labels) > 0 {
		t.Errorf("it is %v, %v", foreign, err)
	}
	condition := func() *metav1.Condition {
		var p v1alpha1.Project
		if err := w.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &p); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionMembersBound)
	}
	if c := condition(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonRoleBindingFailed ||
		c.Message != "RoleBinding sluice:l2-researcher in namespace ns exists and is not Sluice's; rename or delete it" {
		t.Errorf("condition = %v", c)
	}
	if err := w.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expectedBindings, w.reconcileUntilStable()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c := condition(); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("condition afterwards = %v", c)
	}
}
