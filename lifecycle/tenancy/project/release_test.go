// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/tenancy/rbac"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// deletedCluster is a cluster in which project thesis with namespace lab is being deleted. It does what
// Kubernetes does: it counts quotas, refuses claims by them, and deletes namespaces.
type deletedCluster struct {
	*testing.T
	client.WithWatch // Kubernetes and the users
	pods             fakePods
	// calls counts lifecycle's calls; call number fails is answered with an error, after its effect if
	// lost is set.
	calls, fails int
	lost         bool
	// onCall is called after each call of lifecycle.
	onCall func(verb string, object runtime.Object)
}

var (
	errCrash   = errors.New("lifecycle was killed")
	createdFor = map[string]string{v1alpha1.AnnotationCreatedFor: "thesis-uid"}
)

// typeConverters are those of all kinds. They are expensive to make.
var typeConverters = sync.OnceValue(func() []managedfields.TypeConverter {
	scheme, err := api.NewScheme()
	if err != nil {
		panic(err)
	}
	return []managedfields.TypeConverter{
		applyconfiguration.NewTypeConverter(scheme), clientgoac.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter(),
	}
})

// newDeletedCluster returns a cluster with the objects beside the namespace, which Sluice created.
func newDeletedCluster(t *testing.T, pods fakePods, objects ...client.Object) *deletedCluster {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{
			Name: "thesis", UID: "thesis-uid", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), DeletionTimestamp: &now,
			Finalizers: []string{v1alpha1.FinalizerProject},
		},
		Spec: v1alpha1.ProjectSpec{
			Department: "students", Namespace: "lab", Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}}},
		},
		Status: v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectDeleting, PhaseSince: &now,
			Namespace: &v1alpha1.ProjectNamespace{Name: "lab", UID: "lab-uid", Origin: v1alpha1.NamespaceCreated},
		},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", UID: "lab-uid", Annotations: createdFor, Labels: map[string]string{
		v1alpha1.LabelProject: "thesis", v1alpha1.LabelDepartment: "students", v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice,
	}}}
	c := &deletedCluster{T: t, pods: pods, onCall: func(string, runtime.Object) {}}
	c.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, project, namespace)...).
		WithStatusSubresource(&v1alpha1.Project{}, &corev1.ResourceQuota{}).WithReturnManagedFields().WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithTypeConverters(typeConverters()...).Build()
	return c
}

// call counts a call of lifecycle and does it, unless it fails.
func (c *deletedCluster) call(verb string, object runtime.Object, do func() error) error {
	c.calls++
	if c.calls == c.fails && !c.lost {
		return errCrash
	}
	err := do()
	c.onCall(verb, object)
	if c.calls == c.fails {
		return errCrash
	}
	return err
}

// start returns a lifecycle that has just started.
func (c *deletedCluster) start() *Reconciler {
	lifecycle := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return c.call("get", object, func() error { return w.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return c.call("list", list, func() error { return w.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return c.call("create", object, func() error { return w.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return c.call("delete", object, func() error {
				if object.GetObjectKind().GroupVersionKind().Kind == "Namespace" || isNamespace(object) {
					c.requireNoClaims()
				}
				return w.Delete(ctx, object, options...)
			})
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return c.call("patch", object, func() error { return w.Patch(ctx, object, patch, options...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return c.call("apply", nil, func() error { return w.Apply(ctx, object, options...) })
		},
		SubResourceApply: func(ctx context.Context, w client.Client, resource string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			return c.call("apply", nil, func() error { return w.SubResource(resource).Apply(ctx, object, options...) })
		},
	})
	return &Reconciler{
		Client: lifecycle, Live: lifecycle, Pods: c.pods, Clock: policytime.System(), Queues: &apply.QueueWatcher{},
		Notices: notification.Recorder{Client: lifecycle, Live: lifecycle}, Access: &rbac.Manager{Client: lifecycle, Live: lifecycle},
		Events: events.NewFakeRecorder(1000), Stopper: &suspend.Stopper{Client: lifecycle},
	}
}

func isNamespace(object client.Object) bool {
	_, ok := object.(*corev1.Namespace)
	return ok
}

// reconcile runs lifecycle, with Kubernetes beside it, until the project is gone. It starts again after
// each crash, and reports false if the project stays.
func (c *deletedCluster) reconcile() bool {
	c.Helper()
	r := c.start()
	for range 30 {
		_, err := r.Reconcile(c.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "thesis"}})
		switch {
		case errors.Is(err, errCrash):
			r = c.start()
		case err != nil && !apierrors.IsConflict(err):
			c.Fatal(err)
		}
		if apierrors.IsNotFound(c.Get(c.Context(), client.ObjectKey{Name: "thesis"}, &v1alpha1.Project{})) {
			return true
		}
		c.countQuotas()
		c.collectGarbage()
		time.Sleep(3 * time.Second) // of synctest
	}
	return false
}

// countQuotas is the quota controller.
func (c *deletedCluster) countQuotas() {
	c.Helper()
	var quotas corev1.ResourceQuotaList
	if err := c.List(c.Context(), &quotas); err != nil {
		c.Fatal(err)
	}
	for i := range quotas.Items {
		if equality.Semantic.DeepEqual(quotas.Items[i].Status.Hard, quotas.Items[i].Spec.Hard) {
			continue
		}
		quotas.Items[i].Status.Hard = quotas.Items[i].Spec.Hard
		if err := c.Status().Update(c.Context(), &quotas.Items[i]); err != nil {
			c.Fatal(err)
		}
	}
}

// createClaim creates a volume claim as a user, unless a counted quota refuses it.
func (c *deletedCluster) createClaim(name string) {
	c.Helper()
	var quotas corev1.ResourceQuotaList
	if err := c.List(c.Context(), &quotas, client.InNamespace("lab")); err != nil {
		c.Fatal(err)
	}
	for i := range quotas.Items {
		if limit, ok := quotas.Items[i].Status.Hard[corev1.ResourcePersistentVolumeClaims]; ok && limit.IsZero() {
			return
		}
	}
	if err := c.Create(c.Context(), newClaim(name)); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
}

// requireNoClaims fails the test if the namespace, which is about to be deleted, has a volume claim.
func (c *deletedCluster) requireNoClaims() {
	c.Helper()
	if names := c.names(&corev1.PersistentVolumeClaimList{}); len(names) > 0 {
		c.Fatalf("the namespace is deleted with the volume claims %v", names)
	}
}

// names returns the names of the objects of a kind in the namespace.
func (c *deletedCluster) names(list client.ObjectList) (names []string) {
	c.Helper()
	if err := c.List(c.Context(), list, client.InNamespace("lab")); err != nil {
		c.Fatal(err)
	}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		names = append(names, object.GetName())
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	return names
}

func newClaim(name string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "lab", Name: name, UID: types.UID("claim-" + name), OwnerReferences: owners,
	}}
}

// A volume claim that a user creates at any moment of the deletion is refused, or keeps the namespace.
// Guards "volumes are never deleted" and invariant 8.
func TestClaimCreatedDuringDeletionIsNotLost(t *testing.T) {
	for at := 1; ; at++ {
		var calls int
		synctest.Test(t, func(t *testing.T) {
			c := newDeletedCluster(t, fakePods{})
			c.onCall = func(string, runtime.Object) {
				if c.calls == at {
					c.createClaim("late")
				}
			}
			if !c.reconcile() {
				t.Fatalf("a claim after call %d: the project stays", at)
			}
			calls = c.calls
		})
		if at > calls {
			break
		}
	}
}

// A project that is gone and that the cache still has brings nothing back to the namespace that stays.
func TestStaleCacheBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newDeletedCluster(t, fakePods{}, newClaim("data"))
		var stale v1alpha1.Project
		var labeled corev1.Namespace
		for key, object := range map[string]client.Object{"thesis": &stale, "lab": &labeled} {
			if err := c.Get(t.Context(), client.ObjectKey{Name: key}, object); err != nil {
				t.Fatal(err)
			}
		}
		if !c.reconcile() {
			t.Fatal("the project stays")
		}
		r := c.start()
		r.Client = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				switch object := object.(type) {
				case *v1alpha1.Project:
					stale.DeepCopyInto(object)
				case *corev1.Namespace:
					labeled.DeepCopyInto(object)
				default:
					return w.Get(ctx, key, object, options...)
				}
				return nil
			},
		})
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "thesis"}}); err != nil {
			t.Fatal(err)
		}
		if quotas := c.names(&corev1.ResourceQuotaList{}); len(quotas) > 0 {
			t.Errorf("the namespace has the quotas %v again", quotas)
		}
	})
}

// The members' own role bindings go first, and those of an adopted namespace that are older than the
// project stay. Guards invariant 4.
func TestRoleBindingsOfMembersAreRevoked(t *testing.T) {
	at := func(name string, age time.Duration) client.Object {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newDeletedCluster(t, fakePods{}, newClaim("data"), at("by-a-member", time.Minute), at("older", 2*time.Hour))
		c.onCall = func(string, runtime.Object) {
			quotas, bindings := c.names(&corev1.ResourceQuotaList{}), c.names(&rbacv1.RoleBindingList{})
			if len(quotas) > 0 && slices.Contains(bindings, "by-a-member") {
				t.Error("new claims are refused before the rights end")
			}
		}
		if !c.reconcile() {
			t.Fatal("the project stays")
		}
		if diff := cmp.Diff([]string{"older"}, c.names(&rbacv1.RoleBindingList{})); diff != "" {
			t.Errorf("role bindings (-want +got):\n%s", diff)
		}
	})
}

// A namespace that a user deletes, and that Kubernetes cannot finish, keeps the project, which says why.
func TestTerminatingNamespaceIsReported(t *testing.T) {
	deleted := metav1.Now()
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "lab", DeletionTimestamp: &deleted},
		Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
			{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse, Message: "All content successfully deleted"},
			{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: "example.org/backup in 1 resource instances"},
		}},
	}
	want := "waiting for the deletion of namespace lab; example.org/backup in 1 resource instances"
	if got := describeTermination(namespace); got.message != want || got.reason != ReasonDeleting {
		t.Errorf("message = %+v, want %q", got, want)
	}
}
