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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

const testNamespace = "lab"

// errLost is the error of a call whose response was lost.
var errLost = errors.New("the connection broke")

// testingT is what a *testing.T and a *rapid.T have in common.
type testingT interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// fakePolicyClock is policy time that a test steps.
type fakePolicyClock struct{ line policytime.Timeline }

func (p *fakePolicyClock) Now() time.Time                 { return p.line.At(time.Now()) }
func (p *fakePolicyClock) FromReal(t time.Time) time.Time { return p.line.At(t) }
func (p *fakePolicyClock) RealUntil(t time.Time) time.Duration {
	return p.line.RealUntil(t, time.Now())
}

// testEnv is a namespace with a project, and the reconciler of its use. Machine time
// is that of the bubble it runs in.
type testEnv struct {
	t      testingT
	client client.Client
	time   *fakePolicyClock
	r      *Reconciler
	pods   map[types.UID]*podcache.Pod
	// writes counts the calls that write; failAt is the one whose answer is lost, and
	// done whether it is done all the same. crash is whether the process dies of it.
	writes, failAt int
	done, crash    bool
	// began is when pods began, in policy time.
	began map[string]time.Time
	// used is what the pods used that have ended, by user.
	used map[string]int64
	// ended are the pods that ended, in order. lost is the usage of such pods that crashes lost,
	// by user.
	ended []endedUse
	lost  map[string]int64
	// elapsed is the time for which the controller has run.
	elapsed time.Duration
	// unresolved are the pods whose workload is unknown.
	unresolved map[types.UID]bool
}

// newTestEnv begins at an instant of policy time.
func newTestEnv(t testingT, at string, objects ...client.Object) *testEnv {
	t.Helper()
	kinds := runtime.NewScheme() // of few kinds: the fake client goes through all of them at each write
	if err := errors.Join(corev1.AddToScheme(kinds), v1alpha1.AddToScheme(kinds)); err != nil {
		t.Fatal(err)
	}
	w := &testEnv{t: t, time: &fakePolicyClock{}, pods: map[types.UID]*podcache.Pod{}, began: map[string]time.Time{}, used: map[string]int64{}, lost: map[string]int64{}}
	w.time.line.Segments = []policytime.Segment{{Real: time.Now().Add(-time.Hour), Policy: parseTime(at).Add(-time.Hour), Scale: 1}}
	objects = append(objects, newDepartment("students", "Europe/Berlin"), newProject("students"))
	w.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.UsageRecord{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return w.intercept(o, func() error { return c.Create(ctx, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return w.intercept(o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
		}).Build()
	w.restart()
	return w
}

// intercept makes a call that writes a record, unless it is the one that is to fail.
func (w *testEnv) intercept(o client.Object, do func() error) error {
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

// ClockOf implements Workloads: a pod's name is that of its workload, a dash and a suffix.
func (w *testEnv) ClockOf(pod *podcache.Pod) (types.NamespacedName, bool) {
	return types.NamespacedName{Namespace: pod.Namespace, Name: clockName(string(pod.UID))}, !w.unresolved[pod.UID]
}

// restart begins with nothing in memory, but for what runs.
func (w *testEnv) restart() {
	w.r = &Reconciler{Client: w.client, Live: w.client, ClockResolver: w, Clock: w.time}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.r.tracker.handleChange(podcache.Change{After: w.pods[uid]})
	}
}

// startPod binds a pod; it was bound so long ago. Its containers start later.
func (w *testEnv) startPod(uid string, milli workload.Milli, ago time.Duration) {
	pod := &podcache.Pod{
		Namespace: testNamespace, Name: uid, UID: types.UID(uid), Node: "dgx-1", CreatedAt: time.Now().Add(-time.Hour),
		BoundAt: time.Now().Add(-ago).Truncate(time.Second), Milli: milli, Pool: "dgx", WorkloadType: v1alpha1.WorkloadTrain,
		Controller: podcache.Owner{UID: "controller-of-" + types.UID(uid)},
	}
	w.pods[pod.UID] = pod
	w.began[uid] = w.toPolicyTime(pod.BoundAt)
	if second := w.toPolicyTime(earlierTime(pod.BoundAt.Add(time.Second-1), time.Now())); second.Sub(w.began[uid]) > time.Hour {
		w.began[uid] = second // there was a step in it
	}
	w.r.tracker.handleChange(podcache.Change{After: pod})
}

// deletePod starts the grace period of a pod, which is still there when it is over.
func (w *testEnv) deletePod(uid string, grace time.Duration) {
	before := w.pods[types.UID(uid)]
	after := *before
	after.Deleting, after.GraceEndsAt = true, time.Now().Add(grace)
	w.pods[after.UID] = &after
	w.r.tracker.handleChange(podcache.Change{Before: before, After: &after})
}

// setNodeReady sets the condition Ready of the node of all pods.
func (w *testEnv) setNodeReady(ready corev1.ConditionStatus) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}
	if err := client.IgnoreAlreadyExists(w.client.Create(context.Background(), node)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(node), node); err != nil {
		w.t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
	if err := w.client.Status().Update(context.Background(), node); err != nil {
		w.t.Fatal(err)
	}
}

// stopPod ends a pod.
func (w *testEnv) stopPod(uid string) {
	pod := w.pods[types.UID(uid)]
	delete(w.pods, pod.UID)
	user := w.userOf(uid)
	use := Use{Milli: pod.Milli, From: w.began[uid], To: w.toPolicyTime(time.Now())}
	w.used[user] += use.MilliSeconds()
	w.ended = append(w.ended, endedUse{user, clockName(uid), use, w.elapsed})
	w.r.tracker.handleChange(podcache.Change{Before: pod})
}

func (w *testEnv) userOf(uid string) string {
	var c v1alpha1.WorkloadClock
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: clockName(uid)}, &c); err != nil {
		return UnknownName
	}
	return c.Status.CreatedBy
}

func (w *testEnv) toPolicyTime(at time.Time) time.Time { return truncateToSecond(w.time.FromReal(at)) }

// advance advances machine time and reconciles when the controller requested it.
func (w *testEnv) advance(span time.Duration) {
	w.t.Helper()
	end := time.Now().Add(span)
	for {
		next := time.Minute
		result, err := apply.RequeueOnConflict(w.r).Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: testNamespace}})
		switch {
		case errors.Is(err, errLost):
			if w.crash {
				w.killProcess()
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
		w.elapsed += min(next, left)
	}
}

// endedUse is the use of a pod that ended.
type endedUse struct {
	user, clock string
	Use
	// elapsed is the time for which the controller had run when the pod ended.
	elapsed time.Duration
}

// maxWriteDelay is the longest time that the controller needs to write what has ended,
// with a write that fails now and then.
const maxWriteDelay = 2*minWriteInterval + 10*time.Second

// killProcess is the death of the process: what it has in memory is gone. What of it was
// in no record is lost for ever, and is what had ended a moment before.
func (w *testEnv) killProcess() {
	recorded, cursors := w.recordedByUser(), map[string]time.Time{}
	for _, record := range w.listRecords() {
		for _, cursor := range record.Status.Accounted {
			cursors[cursor.Clock] = laterTime(cursors[cursor.Clock], cursor.Until.UTC())
		}
	}
	for _, pod := range w.pods {
		uid := string(pod.UID)
		recorded[w.userOf(uid)] -= Use{Milli: pod.Milli, From: w.began[uid], To: cursors[clockName(uid)]}.MilliSeconds()
	}
	for user, used := range w.used {
		missing := used - w.lost[user] - recorded[user]
		most := int64(0)
		for _, e := range w.ended {
			if e.user == user && w.elapsed-e.elapsed < maxWriteDelay {
				e.From = laterTime(e.From, cursors[e.clock])
				most += e.MilliSeconds()
			}
		}
		if missing < 0 || missing > most {
			w.t.Fatalf("a crash loses %d of %s, and at most %d ended just before", missing, user, most)
		}
		w.lost[user] += missing
	}
}

func clockName(uid string) string {
	name, _, _ := strings.Cut(uid, "-")
	return name
}

func (w *testEnv) getRecord(month string) *v1alpha1.UsageRecord {
	w.t.Helper()
	var record v1alpha1.UsageRecord
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: testNamespace + "-" + month}, &record); err != nil {
		w.t.Fatal(err)
	}
	return &record
}

func (w *testEnv) listRecords() []v1alpha1.UsageRecord {
	w.t.Helper()
	var list v1alpha1.UsageRecordList
	if err := w.client.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// recordedByUser is what all records say, by user.
func (w *testEnv) recordedByUser() map[string]int64 {
	w.t.Helper()
	sums := map[string]int64{}
	for _, record := range w.listRecords() {
		for _, e := range record.Status.Entries {
			if e.GPUMilliSeconds < 0 {
				w.t.Fatalf("%s: %+v", record.Name, e)
			}
			sums[e.User] += e.GPUMilliSeconds
		}
	}
	return sums
}

// recordedSeconds are the entries' sums of a month's record, in GPUs times seconds.
func (w *testEnv) recordedSeconds(month string) (sum int64) {
	w.t.Helper()
	for _, e := range w.getRecord(month).Status.Entries {
		sum += e.GPUMilliSeconds
	}
	return sum / 1000
}

func newDepartment(name, zone string) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: zone}},
	}
}

func newProject(department string) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: testNamespace, UID: "first", CreationTimestamp: metav1.NewTime(time.Now().Add(-24 * time.Hour))},
		Spec:       v1alpha1.ProjectSpec{Department: department},
		Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: testNamespace}},
	}
}

// newClock is a workload's clock, by whom it was made.
func newClock(name, user string) *v1alpha1.WorkloadClock {
	return &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name},
		Status:     v1alpha1.WorkloadClockStatus{RootUID: "root", CreatedBy: user, WorkloadType: v1alpha1.WorkloadTrain},
	}
}

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at
}

// advanceToWholeSecond waits until a second of machine time begins.
func (w *testEnv) advanceToWholeSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
}
