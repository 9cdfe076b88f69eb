// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/inventory"
)

const lab = "lab"

// errLost is what a call answers of which nobody knows whether it was done.
var errLost = errors.New("the connection broke")

// testingT is what a *testing.T and a *rapid.T have in common.
type testingT interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// policyTime is policy time that a test steps.
type policyTime struct{ line clock.Timeline }

func (p *policyTime) Now() time.Time                      { return p.line.At(time.Now()) }
func (p *policyTime) FromReal(t time.Time) time.Time      { return p.line.At(t) }
func (p *policyTime) RealUntil(t time.Time) time.Duration { return p.line.RealUntil(t, time.Now()) }

// world is a namespace with a project, and the reconciler of its use. Machine time
// is that of the bubble it runs in.
type world struct {
	t      testingT
	client client.Client
	time   *policyTime
	r      *Reconciler
	pods   map[types.UID]*gpupods.Pod
	// writes counts the calls that write; failAt is the one whose answer is lost, and
	// done whether it is done all the same. crash is whether the process dies of it.
	writes, failAt int
	done, crash    bool
	// began is when pods began, in policy time.
	began map[string]time.Time
	// used is what the pods used that have ended, by user.
	used map[string]int64
	// ended are the pods that ended, one by one, and lost is what of them processes
	// took along that died, by user.
	ended []ended
	lost  map[string]int64
	// lived is how long the controller was asked.
	lived time.Duration
}

// newWorld begins at an instant of policy time.
func newWorld(t testingT, at string, objects ...client.Object) *world {
	t.Helper()
	kinds := runtime.NewScheme() // of few kinds: the fake client goes through all of them at each write
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, time: &policyTime{}, pods: map[types.UID]*gpupods.Pod{}, began: map[string]time.Time{}, used: map[string]int64{}, lost: map[string]int64{}}
	w.time.line.Segments = []clock.Segment{{Real: time.Now().Add(-time.Hour), Policy: instant(at).Add(-time.Hour), Scale: 1}}
	objects = append(objects, department("students", "Europe/Berlin"), project("students"))
	w.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.UsageRecord{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return w.call(o, func() error { return c.Create(ctx, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return w.call(o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
		}).Build()
	w.restart()
	return w
}

// call makes a call that writes a record, unless it is the one that is to fail.
func (w *world) call(o client.Object, do func() error) error {
	if _, ours := o.(*v1alpha1.UsageRecord); !ours {
		return do()
	}
	w.writes++
	if w.writes != w.failAt {
		return do()
	}
	if w.done {
		_ = do()
	}
	return errLost
}

// ClockOf implements Workloads: a pod's name is that of its workload, a dash and
// what tells it from others.
func (w *world) ClockOf(pod *gpupods.Pod) (types.NamespacedName, bool) {
	return types.NamespacedName{Namespace: pod.Namespace, Name: clockOf(string(pod.UID))}, true
}

// restart begins with nothing in memory, but for what runs.
func (w *world) restart() {
	w.r = &Reconciler{Client: w.client, Live: w.client, Workloads: w, Clock: w.time}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.r.meter.changed(gpupods.Change{After: w.pods[uid]})
	}
}

// run has a pod run; it began so long ago.
func (w *world) run(uid string, milli workload.Milli, ago time.Duration) {
	pod := &gpupods.Pod{
		Namespace: lab, Name: uid, UID: types.UID(uid), Running: true, CreatedAt: time.Now().Add(-time.Hour),
		StartedAt: time.Now().Add(-ago).Truncate(time.Second), Milli: milli, Pool: "dgx", WorkloadType: v1alpha1.WorkloadTrain,
		Controller: gpupods.Owner{UID: "controller-of-" + types.UID(uid)},
	}
	w.pods[pod.UID] = pod
	w.began[uid] = w.policy(pod.StartedAt)
	if second := w.policy(earlier(pod.StartedAt.Add(time.Second-1), time.Now())); second.Sub(w.began[uid]) > time.Hour {
		w.began[uid] = second // there was a step in it
	}
	w.r.meter.changed(gpupods.Change{After: pod})
}

// end ends a pod.
func (w *world) end(uid string) {
	pod := w.pods[types.UID(uid)]
	delete(w.pods, pod.UID)
	user := w.userOf(uid)
	use := Use{Milli: pod.Milli, From: w.began[uid], To: w.policy(time.Now())}
	w.used[user] += use.MilliSeconds()
	w.ended = append(w.ended, ended{user, clockOf(uid), use, w.lived})
	w.r.meter.changed(gpupods.Change{Before: pod})
}

func (w *world) userOf(uid string) string {
	var c v1alpha1.WorkloadClock
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: lab, Name: clockOf(uid)}, &c); err != nil {
		return Unknown
	}
	return c.Status.CreatedBy
}

func (w *world) policy(at time.Time) time.Time { return whole(w.time.FromReal(at)) }

// live lets machine time pass, as the controller wants to be asked.
func (w *world) live(span time.Duration) {
	w.t.Helper()
	end := time.Now().Add(span)
	for {
		next := time.Minute
		result, err := conflict.Retried(w.r).Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: lab}})
		switch {
		case errors.Is(err, errLost):
			if w.crash {
				w.die()
				w.restart()
			}
			next = time.Second
		case err != nil:
			w.t.Fatal(err)
		case result.RequeueAfter > 0:
			next = result.RequeueAfter
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(next, left))
		w.lived += min(next, left)
	}
}

// ended is the use of a pod that ended.
type ended struct {
	user, clock string
	Use
	// lived is how long the controller had been asked when it ended.
	lived time.Duration
}

// writtenWithin is how long the controller needs at most to write what has ended,
// with a write that fails now and then.
const writtenWithin = 2*writeSpacing + 10*time.Second

// die is the death of the process: what it has in memory is gone. What of it was
// in no record is lost for ever, and is what had ended a moment before.
func (w *world) die() {
	recorded, cursors := w.recorded(), map[string]time.Time{}
	for _, record := range w.records() {
		for _, cursor := range record.Status.Accounted {
			cursors[cursor.Clock] = later(cursors[cursor.Clock], cursor.Until.UTC())
		}
	}
	for _, pod := range w.pods {
		uid := string(pod.UID)
		recorded[w.userOf(uid)] -= Use{Milli: pod.Milli, From: w.began[uid], To: cursors[clockOf(uid)]}.MilliSeconds()
	}
	for user, used := range w.used {
		missing := used - w.lost[user] - recorded[user]
		most := int64(0)
		for _, e := range w.ended {
			if e.user == user && w.lived-e.lived < writtenWithin {
				e.From = later(e.From, cursors[e.clock])
				most += e.MilliSeconds()
			}
		}
		if missing < 0 || missing > most {
			w.t.Fatalf("a death takes along %d of %s, and at most %d ended just before", missing, user, most)
		}
		w.lost[user] += missing
	}
}

func clockOf(uid string) string {
	name, _, _ := strings.Cut(uid, "-")
	return name
}

func (w *world) record(month string) *v1alpha1.UsageRecord {
	w.t.Helper()
	var record v1alpha1.UsageRecord
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: lab + "-" + month}, &record); err != nil {
		w.t.Fatal(err)
	}
	return &record
}

func (w *world) records() []v1alpha1.UsageRecord {
	w.t.Helper()
	var list v1alpha1.UsageRecordList
	if err := w.client.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// recorded is what all records say, by user.
func (w *world) recorded() map[string]int64 {
	w.t.Helper()
	sums := map[string]int64{}
	for _, record := range w.records() {
		for _, e := range record.Status.Entries {
			if e.GPUMilliSeconds < 0 {
				w.t.Fatalf("%s: %+v", record.Name, e)
			}
			sums[e.User] += e.GPUMilliSeconds
		}
	}
	return sums
}

// seconds are the entries' sums of a month's record, in GPUs times seconds.
func (w *world) seconds(month string) (sum int64) {
	w.t.Helper()
	for _, e := range w.record(month).Status.Entries {
		sum += e.GPUMilliSeconds
	}
	return sum / 1000
}

func department(name, zone string) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: zone}},
	}
}

func project(department string) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: lab, UID: "first", CreationTimestamp: metav1.NewTime(time.Now().Add(-24 * time.Hour))},
		Spec:       v1alpha1.ProjectSpec{Department: department},
		Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: lab}},
	}
}

// made is a workload's clock, by whom it was made.
func made(name, user string) *v1alpha1.WorkloadClock {
	return &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: name},
		Status:     v1alpha1.WorkloadClockStatus{RootUID: "root", CreatedBy: user, WorkloadType: v1alpha1.WorkloadTrain},
	}
}

func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at
}

// wholeSecond waits until a second of machine time begins.
func (w *world) wholeSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
}
