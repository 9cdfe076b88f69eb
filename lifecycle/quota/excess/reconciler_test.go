// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/timelimit/suspend"
)

const dgxMilli = "sluice.dev/gpu-milli.dgx"

// testEnv is project thesis in namespace work, with a limit of 2 GPUs in node pool dgx.
type testEnv struct {
	*Reconciler
	pods     fakePods
	mu       sync.Mutex
	evicted  []string
	graces   []*int64
	messages []string
	evicting func() // called for each eviction
	refused  error
	recorder *events.FakeRecorder

	announcements *fakeAnnouncer
}

type fakePods []*podcache.Pod

func (f *fakePods) InNamespace(namespace string) iter.Seq[*podcache.Pod] {
	return func(yield func(*podcache.Pod) bool) {
		for _, pod := range *f {
			if pod.Namespace == namespace && !yield(pod) {
				return
			}
		}
	}
}

func (f *fakePods) ByUID(uid types.UID) (*podcache.Pod, bool) {
	i := slices.IndexFunc(*f, func(pod *podcache.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil, false
	}
	return (*f)[i], true
}

// EvictPod implements Evictor.
func (e *testEnv) EvictPod(_ context.Context, pod suspend.Target, grace *int64, message string) error {
	if e.refused != nil {
		return e.refused
	}
	if e.evicting != nil {
		e.evicting()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.evicted, e.graces, e.messages = append(e.evicted, pod.Name), append(e.graces, grace), append(e.messages, message)
	return nil
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
	project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "work"}
	project.Spec.NodePools = []v1alpha1.PoolQuota{{Name: "dgx"}}
	labels := map[string]string{v1alpha1.LabelProject: "thesis", v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "work", Name: v1alpha1.QuotaName, UID: "quota", Labels: labels}}
	quota.Status.Hard = corev1.ResourceList{
		"requests." + dgxMilli: resource.MustParse("2000"), "requests.sluice.dev/guaranteed-milli.dgx": resource.MustParse("0"),
		"pods": resource.MustParse("1"),
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKube}}
	e := &testEnv{recorder: events.NewFakeRecorder(50), announcements: &fakeAnnouncer{}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(project, quota, pool).
		WithStatusSubresource(project, &v1alpha1.Department{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByDepartment, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Project).Spec.Department}
		}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Project).Status.Namespace.Name}
		}).
		WithTypeConverters(applyconfiguration.NewTypeConverter(scheme), clientgoac.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter()).
		Build()
	e.Reconciler = &Reconciler{Client: c, Live: c, Evictor: e, Events: e.recorder, Announcer: e.announcements, Announced: e.announcements}
	e.initState(&e.pods)
	return e
}

// add adds pods with one GPU each that were created some seconds from now.
func (e *testEnv) add(seconds int, names ...string) {
	for _, name := range names {
		e.pods = append(e.pods, &podcache.Pod{
			Namespace: "work", Name: name, UID: types.UID(name), Project: "thesis", Milli: 1000, QuotaResource: dgxMilli,
			CreatedAt: policytime.MachineNow().Add(time.Duration(seconds) * time.Second),
		})
	}
}

func (e *testEnv) reconcileOnce(t *testing.T) (*metav1.Condition, error) {
	t.Helper()
	name := types.NamespacedName{Name: "thesis"}
	_, err := e.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
	var project v1alpha1.Project
	if err := e.Client.Get(t.Context(), name, &project); err != nil {
		t.Fatal(err)
	}
	return meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionLimitExceeded), err
}

// Guards invariants 3 and 11 of the design: an excess is ended once, reported, and kept in the
// condition after its end.
func TestReconcileEndsExcessOnce(t *testing.T) {
	e := newTestEnv(t)
	e.add(60, "a", "b")
	if c, err := e.reconcileOnce(t); err != nil || c != nil || len(e.evicted) > 0 {
		t.Fatalf("within the limit: %+v, evicted %v, %v", c, e.evicted, err)
	}
	e.add(61, "c")
	e.refused = errors.New("no answer")
	if _, err := e.reconcileOnce(t); err == nil || len(e.recorder.Events) > 0 {
		t.Errorf("a failed eviction: %v, and %d events", err, len(e.recorder.Events))
	}
	e.refused = nil
	for range 2 { // the second pass sees the pod before its deletion
		c, err := e.reconcileOnce(t)
		if err != nil || c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNewestPodsEnded {
			t.Fatalf("condition %+v, %v", c, err)
		}
	}
	if !slices.Equal(e.evicted, []string{"c"}) || len(e.recorder.Events) != 2 {
		t.Errorf("evicted %v, with %d events; want pod c and an event on it and on the project", e.evicted, len(e.recorder.Events))
	}
	if grace := e.graces[0]; grace == nil || *grace != 1 {
		t.Errorf("grace period %v, want one second for a new pod", grace)
	}
	e.pods[2].Deleting = true
	c, err := e.reconcileOnce(t)
	if err != nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonWithinLimit ||
		!strings.Contains(c.Message, "1 GPU more than its limit of 2 GPUs, because the quota's counter lagged behind; ended the newest: pod work/c") {
		t.Errorf("after the end: %+v, %v", c, err)
	}
}

// Guards invariants 3 and 11 of the design: the pod of a deleted Deployment holds its GPU while it
// terminates. The pod that the quota should have refused meanwhile is ended, once, and no other.
func TestReconcileCountsTerminatingPods(t *testing.T) {
	e := newTestEnv(t)
	e.add(60, "a", "old")
	e.add(61, "new")
	terminate := func(pod *podcache.Pod, grace time.Duration) {
		pod.Deleting, pod.GraceEndsAt = true, policytime.MachineNow().Add(grace)
	}
	terminate(e.pods[1], time.Hour)
	e.pods[1].CreatedAt = policytime.MachineNow().Add(-time.Hour)
	for range 2 { // the second pass sees that the new pod terminates
		c, err := e.reconcileOnce(t)
		if err != nil || c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNewestPodsEnded ||
			!slices.Equal(e.evicted, []string{"new"}) {
			t.Fatalf("condition %+v, evicted %v, %v", c, e.evicted, err)
		}
		terminate(e.pods[2], time.Second)
	}
	name := types.NamespacedName{Name: "thesis"}
	if result, err := e.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil || result.RequeueAfter > time.Second || result.RequeueAfter <= 0 {
		t.Errorf("the next pass comes after %s, %v; want the end of the grace period", result.RequeueAfter, err)
	}
	e.pods = e.pods[:2]
	if c, err := e.reconcileOnce(t); err != nil || c.Status != metav1.ConditionFalse {
		t.Errorf("after the end of the new pod: %+v, %v", c, err)
	}
}

// Guards invariant 3 of the design: the grace period of a new pod above the limit is shortened, once, if
// another user deletes the pod first.
func TestReconcileShortensGracePeriod(t *testing.T) {
	e := newTestEnv(t)
	e.add(60, "a", "b")
	e.add(61, "c")
	e.pods[2].Deleting, e.pods[2].GraceEndsAt = true, policytime.MachineNow().Add(time.Hour)
	for range 2 {
		if _, err := e.reconcileOnce(t); err != nil || !slices.Equal(e.evicted, []string{"c"}) || *e.graces[0] != 1 {
			t.Fatalf("evicted %v, %v", e.evicted, err)
		}
	}
}

// Guards invariant 3 of the design: pods from before the start of lifecycle, and those that the quota
// does not count, never end.
func TestReconcileKeepsOlderAndUncountedPods(t *testing.T) {
	e := newTestEnv(t)
	e.add(60, "a", "b", "uncounted", "elsewhere")
	e.pods[2].QuotaResource, e.pods[3].QuotaResource = "", "sluice.dev/gpu-milli"
	if c, err := e.reconcileOnce(t); err != nil || c != nil {
		t.Errorf("pods that the quota does not count: %+v, %v", c, err)
	}
	e.add(-1, "old")
	c, err := e.reconcileOnce(t)
	if err != nil || c == nil || c.Status != metav1.ConditionTrue || !slices.Equal(e.evicted, []string{"b"}) {
		t.Errorf("an old pod above the limit: %+v, evicted %v, %v", c, e.evicted, err)
	}
}

// Guards invariant 3 of the design: what a stale webhook admits in a node pool that the project lost is
// ended. The pods that continue there exceed no limit.
func TestReconcileEndsPodsOfLostPool(t *testing.T) {
	e := newTestEnv(t)
	quota, err := apply.GetQuota(t.Context(), e.Client, apply.Target{Kind: apply.SubjectProject, Name: "thesis", Namespace: "work"})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard["requests.sluice.dev/gpu-milli.lost"] = resource.MustParse("0")
	if err := e.Client.Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	e.add(-1, "old")
	e.pods[0].QuotaResource = "sluice.dev/gpu-milli.lost"
	if c, err := e.reconcileOnce(t); err != nil || c != nil || len(e.evicted) > 0 {
		t.Errorf("a pod that continues: %+v, evicted %v, %v", c, e.evicted, err)
	}
	e.add(60, "new")
	e.pods[1].QuotaResource = e.pods[0].QuotaResource
	if c, err := e.reconcileOnce(t); err != nil || c == nil || !slices.Equal(e.evicted, []string{"new"}) {
		t.Errorf("a pod of a stale webhook: %+v, evicted %v, %v", c, e.evicted, err)
	}
}

// Guards invariant 11 of the design: an excess names its cause.
func TestReconcileNamesCause(t *testing.T) {
	for name, tc := range map[string]struct {
		other *corev1.ResourceQuota
		want  string
	}{
		"a recount": {nil, "because the quota's counter lagged behind; ended the newest: pod work/c"},
		"another quota": {
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "work", Name: "compute"}},
			"because the API server does not hold limits in a namespace with other ResourceQuotas, which this one has (compute); ended the newest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			if tc.other != nil {
				if err := e.Client.Create(t.Context(), tc.other); err != nil {
					t.Fatal(err)
				}
			}
			e.add(60, "a", "b", "c")
			if c, err := e.reconcileOnce(t); err != nil || c == nil || !strings.Contains(c.Message, tc.want) {
				t.Errorf("condition %+v, %v, want %q", c, err, tc.want)
			}
			if len(e.messages) != 1 || !strings.Contains(e.messages[0], strings.TrimSuffix(tc.want, "; ended the newest: pod work/c")[:40]) {
				t.Errorf("the pod says %q", e.messages)
			}
		})
	}
}

// Guards invariant 12 of the design: a pod that was admitted under a raised limit stays, although the cache does not have
// that limit yet.
func TestReconcileReadsRaisedLimit(t *testing.T) {
	e, raised := newTestEnv(t), newTestEnv(t)
	e.Live = raised.Client
	quota, err := apply.GetQuota(t.Context(), raised.Client, apply.Target{Kind: apply.SubjectProject, Name: "thesis", Namespace: "work"})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard["requests."+dgxMilli] = resource.MustParse("3000")
	if err := raised.Client.Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	e.add(60, "a", "b", "c")
	if c, err := e.reconcileOnce(t); err != nil || c != nil || len(e.evicted) > 0 {
		t.Errorf("condition %+v, evicted %v, %v", c, e.evicted, err)
	}
}

// Guards invariant 3 of the design: all pods of an excess are ended at the same time, so that the last does
// not wait for the API server's answers about the others.
func TestReconcileEndsExcessAtOnce(t *testing.T) {
	e := newTestEnv(t)
	var all []string
	for i := range maxConcurrentEnds + 2 {
		all = append(all, "pod-"+strconv.Itoa(10+i))
	}
	e.add(60, all...)
	var waiting sync.WaitGroup
	waiting.Add(maxConcurrentEnds)
	e.evicting = func() { waiting.Done(); waiting.Wait() } // one after the other, they would wait for ever
	if _, err := e.reconcileOnce(t); err != nil || len(e.evicted) != maxConcurrentEnds {
		t.Errorf("evicted %v, %v", e.evicted, err)
	}
}

// Guards invariant 11 of the design: a lowered limit is reported as such.
func TestReconcileReportsLoweredLimit(t *testing.T) {
	e := newTestEnv(t)
	e.add(2, "a", "b", "c")
	c, err := e.reconcileOnce(t)
	if err != nil || c == nil || c.Reason != v1alpha1.ReasonLimitLowered || len(e.evicted) > 0 ||
		!strings.Contains(c.Message, "by pods that are older than the limit: they continue") {
		t.Errorf("condition %+v, evicted %v, %v", c, e.evicted, err)
	}
	e.pods = e.pods[:2]
	if c, err := e.reconcileOnce(t); err != nil || c.Status != metav1.ConditionFalse || c.Message != "its pods are within its limits" {
		t.Errorf("after it: %+v, %v", c, err)
	}
}
