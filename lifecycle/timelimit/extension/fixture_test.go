// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
)

const testNamespace = "lab"

// errCrash is the error of the call at which the process crashes.
var errCrash = errors.New("the process died here")

// fixture is a namespace of a department with a self-service of two extensions.
type fixture struct {
	t          *testing.T
	client     client.Client
	events     *events.FakeRecorder
	reconciler *Reconciler
	// calls counts writes. crashAt is the number of the write that fails; with
	// crashAfterWrite it fails after the object was written.
	calls, crashAt  int
	crashAfterWrite bool
}

// fixedClock is a constant policy time.
type fixedClock time.Time

func (s fixedClock) Now() time.Time                  { return time.Time(s) }
func (fixedClock) FromReal(t time.Time) time.Time    { return t }
func (fixedClock) RealUntil(time.Time) time.Duration { return 0 }

func newJobClock(name string) *v1alpha1.WorkloadClock {
	return &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: v1alpha1.WorkloadClockName("batch", "Job", name)},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status:     v1alpha1.WorkloadClockStatus{RootUID: "job-uid", CreatedBy: "kim@example.org"},
	}
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, events: events.NewFakeRecorder(1000)}
	contact := func(name string) v1alpha1.Contact {
		return v1alpha1.Contact{Name: v1alpha1.DisplayName(name), Email: v1alpha1.EmailAddress(name + "@example.org")}
	}
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec: v1alpha1.DepartmentSpec{
			Contacts: []v1alpha1.Contact{contact("desk"), contact("dean")},
			Extensions: v1alpha1.ExtensionTerms{
				SelfService: 2, MaxDuration: ptr.To(period.MustParseDuration("24h")), Window: ptr.To(period.MustParseDuration("30d")),
				Approvers: []v1alpha1.ApproverRole{"department-administrator", "editor"},
			},
		},
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: testNamespace},
		Spec: v1alpha1.ProjectSpec{Department: "students", Owners: []v1alpha1.Owner{
			{Contact: contact("anna"), User: "anna"}, {Contact: contact("ben")},
		}},
		Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: testNamespace}, Phase: v1alpha1.ProjectExpiring},
	}
	w.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(append(objects, department, project)...).
		WithStatusSubresource(&v1alpha1.Extension{}, &v1alpha1.Notice{}, &v1alpha1.Project{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return w.interceptWrite(func() error { return c.Create(ctx, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return w.interceptWrite(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				return w.interceptWrite(func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
			},
		}).Build()
	w.reconciler = &Reconciler{
		Client: w.client, Live: w.client, Events: w.events, Clock: fixedClock(testTime),
		Notices: notification.Recorder{Client: w.client, Live: w.client},
	}
	return w
}

// interceptWrite performs a write unless the process crashes at it.
func (w *fixture) interceptWrite(do func() error) error {
	w.calls++
	if w.calls != w.crashAt {
		return do()
	}
	if w.crashAfterWrite {
		_ = do()
	}
	return errCrash
}

// reconcileAll reconciles all Extensions, in the order of their names, until nothing is
// written.
func (w *fixture) reconcileAll() {
	w.t.Helper()
	for range 100 {
		before := w.calls
		for _, name := range slices.Sorted(maps.Keys(w.listExtensions())) {
			_, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: testNamespace, Name: name}})
			if err != nil && !errors.Is(err, errCrash) {
				w.t.Fatal(err)
			}
		}
		if w.calls == before {
			return
		}
	}
	w.t.Fatal("it never comes to rest")
}

func (w *fixture) listExtensions() map[string]*v1alpha1.Extension {
	w.t.Helper()
	var all v1alpha1.ExtensionList
	if err := w.client.List(w.t.Context(), &all, client.InNamespace(testNamespace)); err != nil {
		w.t.Fatal(err)
	}
	byName := map[string]*v1alpha1.Extension{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	return byName
}

// updateExtension updates an Extension's status like another client.
func (w *fixture) updateExtension(name string, change func(*v1alpha1.ExtensionStatus)) {
	w.t.Helper()
	for err := errCrash; errors.Is(err, errCrash); { // only the controller crashes
		e := w.listExtensions()[name]
		change(&e.Status)
		if err = w.client.Status().Update(w.t.Context(), e); err != nil && !errors.Is(err, errCrash) {
			w.t.Fatal(err)
		}
	}
}

// listNotices returns the Notices of a kind, by recipient.
func (w *fixture) listNotices(kind v1alpha1.NoticeKind) map[string]*v1alpha1.Notice {
	w.t.Helper()
	var all v1alpha1.NoticeList
	if err := w.client.List(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	to := map[string]*v1alpha1.Notice{}
	for i := range all.Items {
		if n := &all.Items[i]; n.Spec.Kind == kind {
			to[string(n.Spec.Recipient.Email)+" "+n.Spec.Subject.Name] = n
		}
	}
	return to
}

// recordedEvents returns the events so far.
func (w *fixture) recordedEvents() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}
