// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/suspend"
)

var testTime = time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)

// errCrash is the error of the write at which the process crashes.
var errCrash = errors.New("the process ended here")

// tester is *testing.T or *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// fixture is the project lab of the department students, its pods and a machine time.
type fixture struct {
	tester
	client client.Client
	events *events.FakeRecorder
	now    time.Time
	r      *Reconciler
	check  Check
	// heldUntil is when the disruption budget of a pod, by name, permits its eviction.
	heldUntil map[string]time.Time
	// writes counts the writes; the one with the number crashAt fails, after its effect with crashAfterWrite.
	writes, crashAt int
	crashAfterWrite bool
	// lostAnswers: each eviction takes effect, and its answer is lost.
	lostAnswers bool
	// onEviction is called before a pod is deleted.
	onEviction func(pod *corev1.Pod, forced bool)
	// evictionErr is the answer of the Eviction API to each request, if it is not nil.
	evictionErr error
}

// fixedClock is policy time equal to the fixture's machine time.
type fixedClock struct{ *fixture }

func (c fixedClock) Now() time.Time                      { return c.now }
func (fixedClock) FromReal(t time.Time) time.Time        { return t }
func (c fixedClock) RealUntil(t time.Time) time.Duration { return max(0, t.Sub(c.now)) }

// noPods has no cached pods, and finds no clock.
type noPods struct{}

func (noPods) ByUID(types.UID) (*podcache.Pod, bool) { return nil, false }
func (noPods) ClockOf(*podcache.Pod) (types.NamespacedName, bool) {
	return types.NamespacedName{}, false
}

func newFixture(t tester, objects ...client.Object) *fixture {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{tester: t, events: events.NewFakeRecorder(10000), now: testTime, heldUntil: map[string]time.Time{}}
	objects = append(objects,
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		&v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "lab"},
			Spec: v1alpha1.ProjectSpec{Department: "students", Owners: []v1alpha1.Owner{
				{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}, User: "anna"},
			}},
			Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "lab"}},
		})
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Notice{}, &v1alpha1.Project{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return f.write(func() error { return c.Create(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return f.write(func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return f.write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
			SubResourceCreate: func(ctx context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption) error {
				eviction, ok := body.(*policyv1.Eviction)
				if sub != "eviction" || !ok || eviction.DeleteOptions == nil || eviction.DeleteOptions.Preconditions == nil {
					t.Errorf("unexpected subresource %s: %v", sub, body)
					return nil
				}
				return f.write(func() error { return f.delete(ctx, o, *eviction.DeleteOptions.Preconditions.UID, false) })
			},
		}).Build()
	f.restart()
	return f
}

// restart replaces the process.
func (f *fixture) restart() {
	f.r = &Reconciler{
		Announcer: &Announcer{
			Client: f.client, Live: f.client, Pods: noPods{}, Clocks: noPods{}, Events: f.events, Clock: fixedClock{f},
			Notices: notification.Recorder{Client: f.client, Live: f.client},
			Periods: Periods{Notice: 5 * time.Minute, Budget: 5 * time.Minute},
			now:     func() time.Time { return f.now },
		},
		Evictor: f, attempts: map[types.UID]attempt{}, Announced: f,
	}
	if f.check != nil {
		f.r.Checks = map[v1alpha1.EndReason]Check{v1alpha1.EndPreempted: f.check, v1alpha1.EndShareExceeded: f.check}
	}
}

// write performs a write unless the process crashes at it.
func (f *fixture) write(do func() error) error {
	f.writes++
	if f.lostAnswers {
		_ = do()
		return errCrash
	}
	if f.writes != f.crashAt {
		return do()
	}
	if f.crashAfterWrite {
		_ = do()
	}
	return errCrash
}

// EvictPod implements Evictor.
func (f *fixture) EvictPod(ctx context.Context, pod suspend.Target, _ *int64, _ string) error {
	err := f.write(func() error {
		return f.delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, pod.UID, true)
	})
	return client.IgnoreNotFound(err)
}

// delete deletes a pod as the API server does: with its finalizer it terminates and stays.
func (f *fixture) delete(ctx context.Context, o client.Object, uid types.UID, forced bool) error {
	pod := &corev1.Pod{}
	if err := f.client.Get(ctx, client.ObjectKeyFromObject(o), pod); err != nil {
		return err
	}
	if pod.UID != uid {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("another UID"))
	}
	if !forced && f.evictionErr != nil {
		return f.evictionErr
	}
	if !forced && f.now.Before(f.heldUntil[pod.Name]) {
		return apierrors.NewTooManyRequests("it would violate the pod's disruption budget", 10)
	}
	if f.onEviction != nil && pod.DeletionTimestamp == nil {
		f.onEviction(pod, forced)
	}
	return f.client.Delete(ctx, pod)
}

// Values implements the projection of the pod cache.
func (f *fixture) Values() (announced []*AnnouncedPod) {
	for _, pod := range f.listPods() {
		if p, ok := Parse(&pod); ok {
			announced = append(announced, p)
		}
	}
	return announced
}

// OnChange implements AnnouncedPods: the tests reconcile themselves.
func (f *fixture) OnChange(func()) {}

func (f *fixture) listPods() []corev1.Pod {
	f.Helper()
	var pods corev1.PodList
	if err := f.client.List(context.Background(), &pods); err != nil {
		f.Fatal(err)
	}
	return pods.Items
}

// reconcile reconciles once and returns the delay of the next pass.
func (f *fixture) reconcile() time.Duration {
	f.Helper()
	result, err := f.r.Reconcile(context.Background(), reconcile.Request{})
	if err != nil && !errors.Is(err, errCrash) {
		f.Fatal(err)
	}
	return result.RequeueAfter
}

// pass lets a time pass with reconciliations when they are due.
func (f *fixture) pass(d time.Duration) {
	f.Helper()
	for end := f.now.Add(d); f.now.Before(end); {
		next := f.reconcile()
		if next == 0 || f.now.Add(next).After(end) {
			next = end.Sub(f.now)
		}
		f.now = f.now.Add(next)
	}
	f.reconcile()
}

// newPod returns a running pod of the project lab on a node.
func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{v1alpha1.LabelProject: "lab"},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

// preempted returns the announcement of a pod for the claimant c.
func preempted(name string) Announcement {
	return Announcement{
		Pod: types.NamespacedName{Namespace: "lab", Name: name}, UID: types.UID("uid-" + name), Reason: v1alpha1.EndPreempted, Claimant: "c",
		Message: "its slices are needed",
	}
}

func (f *fixture) getPod(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := f.client.Get(context.Background(), types.NamespacedName{Namespace: "lab", Name: name}, pod); err != nil {
		return nil
	}
	return pod
}

func (f *fixture) notices() []v1alpha1.Notice {
	f.Helper()
	var all v1alpha1.NoticeList
	if err := f.client.List(context.Background(), &all); err != nil {
		f.Fatal(err)
	}
	return all.Items
}

var _ tester = &testing.T{}
