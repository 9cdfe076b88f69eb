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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notices"
)

const lab = "lab"

// errCrash is what a call answers at which the process dies.
var errCrash = errors.New("the process died here")

// world is a namespace of a department that grants two extensions by itself.
type world struct {
	t      *testing.T
	client client.Client
	events *events.FakeRecorder
	r      *Reconciler
	// calls counts the calls that write; crashAt is the one that fails, and written
	// whether what it was to write is written all the same.
	calls, crashAt int
	written        bool
}

// still is policy time that stands still.
type still time.Time

func (s still) Now() time.Time                  { return time.Time(s) }
func (still) FromReal(t time.Time) time.Time    { return t }
func (still) RealUntil(time.Time) time.Duration { return 0 }

func clockOfJob(name string) *v1alpha1.WorkloadClock {
	return &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: v1alpha1.WorkloadClockName("batch", "Job", name)},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status:     v1alpha1.WorkloadClockStatus{RootUID: "job-uid"},
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, events: events.NewFakeRecorder(1000)}
	contact := func(name string) v1alpha1.Contact {
		return v1alpha1.Contact{Name: v1alpha1.DisplayName(name), Email: v1alpha1.EmailAddress(name + "@example.org")}
	}
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec: v1alpha1.DepartmentSpec{
			Contacts: []v1alpha1.Contact{contact("desk"), contact("dean")},
			Extensions: v1alpha1.ExtensionTerms{
				SelfService: 2, Each: ptr.To(period.MustParseDuration("24h")), Window: ptr.To(period.MustParseDuration("30d")),
				Approvers: []v1alpha1.ApproverRole{"department-administrator", "editor"},
			},
		},
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: lab},
		Spec:       v1alpha1.ProjectSpec{Department: "students", Owners: []v1alpha1.Owner{{Contact: contact("anna")}}},
		Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: lab}},
	}
	w.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(append(objects, department, project)...).
		WithStatusSubresource(&v1alpha1.Extension{}, &v1alpha1.Notice{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return w.call(func() error { return c.Create(ctx, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return w.call(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
		}).Build()
	w.r = &Reconciler{
		Client: w.client, Live: w.client, Events: w.events, Clock: still(now),
		Notices: notices.Recorder{Client: w.client, Live: w.client},
	}
	return w
}

// call makes a call that writes, unless it is the one at which the process dies.
func (w *world) call(do func() error) error {
	w.calls++
	if w.calls != w.crashAt {
		return do()
	}
	if w.written {
		_ = do()
	}
	return errCrash
}

// settle looks at all Extensions, in the order of their names, until nothing is
// written any more.
func (w *world) settle() {
	w.t.Helper()
	for range 100 {
		before := w.calls
		for _, name := range slices.Sorted(maps.Keys(w.extensions())) {
			_, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: lab, Name: name}})
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

func (w *world) extensions() map[string]*v1alpha1.Extension {
	w.t.Helper()
	var all v1alpha1.ExtensionList
	if err := w.client.List(w.t.Context(), &all, client.InNamespace(lab)); err != nil {
		w.t.Fatal(err)
	}
	byName := map[string]*v1alpha1.Extension{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	return byName
}

// change writes an Extension's status as somebody else does.
func (w *world) change(name string, change func(*v1alpha1.ExtensionStatus)) {
	w.t.Helper()
	for err := errCrash; errors.Is(err, errCrash); { // only the controller's process dies
		e := w.extensions()[name]
		change(&e.Status)
		if err = w.client.Status().Update(w.t.Context(), e); err != nil && !errors.Is(err, errCrash) {
			w.t.Fatal(err)
		}
	}
}

// notices are those of a kind, by recipient.
func (w *world) notices(kind v1alpha1.NoticeKind) map[string]*v1alpha1.Notice {
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

// said are the events so far.
func (w *world) said() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}
