// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// testEnv is node dgx-1 with pods of project thesis in namespace work.
type testEnv struct {
	*testing.T
	*Reconciler
	node      *v1alpha1.GPUNode
	pods      map[types.UID]*podcache.Pod
	announced []*eviction.AnnouncedPod
	calls     []string
	inputs    map[string]string
	refused   error
	recorder  *events.FakeRecorder
}

// OnNode implements podReader.
func (e *testEnv) OnNode(node string) iter.Seq[*podcache.Pod] {
	return func(yield func(*podcache.Pod) bool) {
		for _, pod := range e.pods {
			if pod.Node == node && !yield(pod) {
				return
			}
		}
	}
}

// ByUID implements podReader.
func (e *testEnv) ByUID(uid types.UID) (*podcache.Pod, bool) { pod, ok := e.pods[uid]; return pod, ok }

// Values returns the announced pods that the cache shows.
func (e *testEnv) Values() []*eviction.AnnouncedPod { return e.announced }

// Announce implements Announcer.
func (e *testEnv) Announce(_ context.Context, a eviction.Announcement) error {
	e.calls, e.inputs = append(e.calls, "announce "+a.Pod.Name), a.Inputs
	return e.refused
}

// Withdraw implements Announcer.
func (e *testEnv) Withdraw(_ context.Context, a eviction.Announcement, why string) error {
	e.calls = append(e.calls, "withdraw "+a.Pod.Name+": "+why)
	return e.refused
}

// Recipients implements Announcer.
func (e *testEnv) Recipients(context.Context, *podcache.Pod, *v1alpha1.Project, *v1alpha1.Department) ([]v1alpha1.NoticeRecipient, error) {
	return []v1alpha1.NoticeRecipient{{Contact: v1alpha1.Contact{Email: "anna@example.org"}}}, nil
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
	project.Spec.Department, project.Spec.Namespace = "students", "work"
	project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "work"}
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}
	node.Status.GPUs = []v1alpha1.ObservedGPU{{UUID: "GPU-0", Index: 3}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(project, department, node).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Project).NamespaceName()}
		}).Build()
	e := &testEnv{T: t, node: node, pods: map[types.UID]*podcache.Pod{}, recorder: events.NewFakeRecorder(50)}
	e.Reconciler = &Reconciler{
		Client: c, Live: c, Announcer: e, Notices: notification.Recorder{Client: c, Live: c}, Events: e.recorder, Clock: policytime.System(),
	}
	e.Announced = e
	e.initState(e)
	return e
}

func (e *testEnv) addPod(name, namespace, project string) *podcache.Pod {
	pod := &podcache.Pod{Namespace: namespace, Name: name, UID: types.UID(name), Node: "dgx-1", Project: project}
	e.pods[pod.UID] = pod
	return pod
}

// report writes the agent's findings, and the memory of their pods.
func (e *testEnv) report(findings ...v1alpha1.Finding) {
	e.Helper()
	e.node.Status.Findings, e.node.Status.Pods = findings, nil
	e.node.Status.SampledAt = &metav1.Time{Time: policytime.MachineNow()}
	for _, f := range findings {
		used := f.ExcessMiB + 10000
		e.node.Status.Pods = append(e.node.Status.Pods, v1alpha1.PodUsage{
			PodReference: v1alpha1.PodReference{UID: f.PodUID, Namespace: "work", Name: string(f.PodUID)},
			MemoryMiB:    &used, ShareMiB: 10000, Devices: []string{f.Device},
		})
	}
	e.write()
}

func (e *testEnv) write() {
	e.Helper()
	if err := e.Client.Update(e.Context(), e.node); err != nil {
		e.Fatal(err)
	}
}

// reconcileOnce returns what was announced and withdrawn.
func (e *testEnv) reconcileOnce() string {
	e.Helper()
	e.calls = nil
	if _, err := e.Reconcile(e.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "dgx-1"}}); err != nil {
		e.Fatal(err)
	}
	return strings.Join(e.calls, ", ")
}

func (e *testEnv) requireCalls(want string) {
	e.Helper()
	if got := e.reconcileOnce(); got != want {
		e.Errorf("%q, want %q", got, want)
	}
}

// eventReasons returns the reasons of the events since the last call.
func (e *testEnv) eventReasons() (reasons []string) {
	for len(e.recorder.Events) > 0 {
		reasons = append(reasons, strings.Fields(<-e.recorder.Events)[1])
	}
	return reasons
}

func (e *testEnv) notices() (subjects []string) {
	e.Helper()
	var list v1alpha1.NoticeList
	if err := e.Client.List(e.Context(), &list); err != nil {
		e.Fatal(err)
	}
	for i := range list.Items {
		subjects = append(subjects, list.Items[i].Spec.Subject.Name+" "+list.Items[i].Spec.Inputs["memoryMiB"])
	}
	return subjects
}

// The worst pod on a device is announced, the next one follows when it is gone, and each is warned once.
func TestWorstFirst(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("a", "work", "thesis")
	b := e.addPod("b", "work", "thesis")
	small, large := newFinding("a ShareExceeded GPU-0", 900), newFinding("b ShareExceeded GPU-0", 5000)
	e.report(small, large)
	e.requireCalls("announce b")
	if e.inputs["memoryMiB"] != "15000" || e.inputs["shareMiB"] != "10000" || e.inputs["gpu"] != "3" || e.inputs["node"] != "dgx-1" {
		t.Errorf("inputs %v", e.inputs)
	}
	if got := e.notices(); !slices.Equal(got, []string{"a 10900"}) {
		t.Errorf("notices of warnings %v; want one to the pod that is not announced", got)
	}
	e.requireCalls("announce b") // the cache does not show it yet; the call completes what a crash interrupted
	e.announced = []*eviction.AnnouncedPod{{Announcement: eviction.Announcement{UID: "b", Reason: v1alpha1.EndShareExceeded}}}
	clear(e.recent)
	e.requireCalls("announce b")
	if got := e.eventReasons(); !slices.Equal(got, []string{"ShareExceeded", "ShareExceeded"}) {
		t.Errorf("events %v; want one warning of each pod", got)
	}
	b.Deleting = true // evicted, but its processes still run
	e.announced = nil
	clear(e.recent)
	e.requireCalls("")
	delete(e.pods, "b")
	e.report(small)
	e.requireCalls("announce a")
	if got := e.eventReasons(); len(got) > 0 || len(e.notices()) != 1 {
		t.Errorf("a pod is warned twice: %v, %v", got, e.notices())
	}
}

// An announcement is withdrawn when the pod is within its share again, and when the agent is silent.
func TestWithdrawals(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("a", "work", "thesis")
	e.report(newFinding("a ShareExceeded GPU-0", 5000))
	e.requireCalls("announce a")
	check := func(want string) {
		t.Helper()
		if why, err := e.Check(t.Context(), eviction.Announcement{UID: "a"}); err != nil || why != want {
			t.Errorf("the check just before the eviction says %q, %v; want %q", why, err, want)
		}
	}
	check("")
	e.announced = []*eviction.AnnouncedPod{{Announcement: eviction.Announcement{UID: "a", Reason: v1alpha1.EndShareExceeded}}}
	e.report()
	check(whyWithinShare)
	e.requireCalls("withdraw a: " + whyWithinShare)
	e.report(newFinding("a ShareExceeded GPU-0", 5000))
	e.node.Status.SampledAt.Time = policytime.MachineNow().Add(-2 * time.Minute)
	e.write()
	check(whyUnknown)
	e.requireCalls("withdraw a: " + whyUnknown)
	e.report(newFinding("a NotAllocated GPU-0", 5000))
	check(whyWithinShare)
	delete(e.pods, "a")
	if why, err := e.Check(t.Context(), eviction.Announcement{UID: "a"}); err == nil {
		t.Errorf("a pod that is not in the cache: %q", why)
	}
	if err := e.Client.Delete(t.Context(), e.node); err != nil {
		t.Fatal(err)
	}
	e.addPod("a", "work", "thesis")
	check(whyUnknown)
	e.requireCalls("")
}

// The agent's last report counts, not what the cache still has.
func TestLiveReport(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("a", "work", "thesis")
	e.report(newFinding("a ShareExceeded GPU-0", 5000))
	live := newTestEnv(t)
	live.report()
	e.Live = live.Client
	e.requireCalls("")
	if got := e.eventReasons(); len(got) > 0 {
		t.Errorf("events %v", got)
	}
}

// Pods outside of projects are never touched, and pods without a request for GPUs are only warned.
func TestUntouchedPods(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("elsewhere", "kube-system", "")
	e.addPod("forged", "kube-system", "thesis")
	e.addPod("older", "work", "")
	e.report(
		newFinding("elsewhere ShareExceeded GPU-0", 5000), newFinding("forged ShareExceeded GPU-1", 5000),
		newFinding("older ShareExceeded GPU-2", 5000), newFinding("cpu NotAllocated GPU-3", 300), newFinding("gone ShareExceeded GPU-4", 300),
	)
	e.requireCalls("")
	got := e.eventReasons()
	if !slices.Equal(got, []string{"NotAllocated"}) || len(e.notices()) > 0 {
		t.Errorf("events %v, notices %v", got, e.notices())
	}
}

// What fails is tried again, and nothing else is held back.
func TestFailures(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("a", "work", "thesis")
	e.addPod("b", "work", "thesis")
	e.report(newFinding("a ShareExceeded GPU-0", 5000), newFinding("b ShareExceeded GPU-1", 5000))
	e.refused = errors.New("no answer")
	if _, err := e.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "dgx-1"}}); err == nil || len(e.calls) != 2 {
		t.Errorf("%v, calls %v", err, e.calls)
	}
	e.refused = eviction.ErrNotGoverned
	e.requireCalls("announce a, announce b")
	e.refused = nil
	e.requireCalls("announce a, announce b")
	if got := len(e.eventReasons()); got != 2 {
		t.Errorf("%d warnings", got)
	}
}

// A finding that comes and goes sends one Notice to the pod's creator, not one each time.
func TestFlappingFindingSendsOneNotice(t *testing.T) {
	e := newTestEnv(t)
	e.addPod("a", "work", "thesis")
	e.addPod("b", "work", "thesis")
	for i := range 3 {
		small, large := newFinding("a ShareExceeded GPU-0", 900), newFinding("b ShareExceeded GPU-0", 5000)
		small.Since.Time = small.Since.Add(time.Duration(i) * time.Minute)
		e.report(small, large)
		e.reconcileOnce()
		e.report()
		e.reconcileOnce()
	}
	if got := e.notices(); !slices.Equal(got, []string{"a 10900"}) {
		t.Errorf("notices of warnings %v, want one", got)
	}
}
