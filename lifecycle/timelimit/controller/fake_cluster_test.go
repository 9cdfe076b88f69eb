// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

const (
	testNamespace  = "lab"
	testDepartment = "students"
	testContact    = "gpu-desk@example.org"
)

// errCrash is the error of the call at which the process crashes.
var errCrash = errors.New("simulated crash")

// fakeCluster is a namespace with a project, and the clock controller. Its time is that of a
// synctest bubble.
type fakeCluster struct {
	t testing.TB
	// client is the controller's client. Calls of rawClient are not counted.
	client    client.Client
	rawClient client.WithWatch
	mapper    *meta.DefaultRESTMapper
	pods      fakePods
	// calls counts writes. crashAt is the number of the write that fails; with
	// crashAfterWrite it fails after the object was written.
	calls, crashAt  int
	crashAfterWrite bool
	// onWrite is called after each write.
	onWrite                         func(client.Object)
	beforeReconcile, afterReconcile func()
	// jobControllerDown is true if suspended Jobs keep their pods.
	jobControllerDown bool
	// stopErrorsAllowed is true if the test makes stops fail.
	stopErrorsAllowed bool
	// terminating holds the end of the grace period of terminating pods.
	terminating map[string]time.Time
	// maxSleep is the longest sleep between two reconciliations.
	maxSleep time.Duration

	reconciler *Reconciler
	workloads  *WorkloadIndex
}

// fakePods implement PodLister.
type fakePods map[types.UID]*podcache.Pod

func (p fakePods) ByUID(uid types.UID) (*podcache.Pod, bool) { pod, ok := p[uid]; return pod, ok }

func (p fakePods) ControlledBy(uid types.UID) iter.Seq[*podcache.Pod] {
	return p.filter(func(pod *podcache.Pod) bool { return pod.Controller.UID == uid })
}

func (p fakePods) OnNode(node string) iter.Seq[*podcache.Pod] {
	return p.filter(func(pod *podcache.Pod) bool { return pod.Node == node })
}

func (p fakePods) filter(is func(*podcache.Pod) bool) iter.Seq[*podcache.Pod] {
	return func(yield func(*podcache.Pod) bool) {
		for _, uid := range slices.Sorted(maps.Keys(p)) {
			if is(p[uid]) && !yield(p[uid]) {
				return
			}
		}
	}
}

// newFakeCluster returns a cluster with a department whose limit is two days.
func newFakeCluster(t testing.TB, objects ...client.Object) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme() // few kinds, because the fake client walks through all of them for each write
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	limit, reset := period.MustParseDuration("48h"), period.MustParseDuration("1h")
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: testDepartment},
		Spec: v1alpha1.DepartmentSpec{
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.AnyWorkload: {MaxRuntime: &limit, ResetAfter: &reset}},
			Notices:   v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"},
			Contacts:  []v1alpha1.Contact{{Name: "GPU desk", Email: testContact}},
		},
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: testNamespace},
		Spec: v1alpha1.ProjectSpec{
			Department: department.Name,
			Owners:     []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}}},
		},
		Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: testNamespace}},
	}
	c := &fakeCluster{t: t, pods: fakePods{}, mapper: meta.NewDefaultRESTMapper([]schema.GroupVersion{kueueWorkloadKind.GroupVersion()})}
	c.mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	c.rawClient = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(c.mapper).
		WithObjects(append(objects, department, project)...).
		WithStatusSubresource(&v1alpha1.WorkloadClock{}, &v1alpha1.Notice{}, &v1alpha1.Extension{}, &v1alpha1.GPUNode{}, &v1alpha1.NodePool{}).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByDepartment, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Project).Spec.Department}
		}).Build()
	c.client = interceptor.NewClient(c.rawClient, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := w.Get(ctx, key, o, opts...)
			if end, is := c.terminating[key.Name]; is && err == nil {
				o.SetUID(types.UID(key.Name)) // as startPod sets it
				o.SetDeletionTimestamp(&metav1.Time{Time: end})
			}
			return err
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.interceptWrite(o, func() error {
				o.SetUID(types.UID(o.GetNamespace() + "/" + o.GetName())) // as the API server does
				return w.Create(ctx, o, opts...)
			})
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.interceptWrite(o, func() error { return w.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.interceptWrite(o, func() error { return w.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	c.onWrite, c.beforeReconcile, c.afterReconcile, c.maxSleep = func(client.Object) {}, func() {}, func() {}, maxRequeueInterval
	c.restart()
	return c
}

// interceptWrite performs a write unless the process crashes at it.
func (c *fakeCluster) interceptWrite(o client.Object, do func() error) error {
	c.calls++
	if c.calls == c.crashAt && !c.crashAfterWrite {
		return errCrash
	}
	err := do()
	if err == nil {
		c.onWrite(o)
	}
	if c.calls == c.crashAt {
		return errCrash
	}
	return err
}

// restart replaces the controller by one without state.
func (c *fakeCluster) restart() {
	stopper := &suspend.Stopper{Client: c.client}
	c.workloads = NewWorkloadIndex(c.pods, owner.NewResolver(c.client, c.mapper, stopper.CanStop), policytime.System())
	c.reconciler = &Reconciler{
		Client: c.client, Live: c.client, Workloads: c.workloads,
		Stopper: stopper, RetryInterval: 30 * time.Second,
		Notices:     notification.Recorder{Client: c.client, Live: c.client},
		StopLimiter: &StopLimiter{Client: c.client, Live: c.client, MaxShare: 0.3, MaxCount: 50},
		Events:      events.NewFakeRecorder(1000),
		Clock:       policytime.System(),
	}
}

// newJob returns a running Job.
func newJob(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name, UID: types.UID(name + "-uid")},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/" + name}},
		}}},
	}
}

// startPod adds a running pod of the Job.
func (c *fakeCluster) startPod(job, uid string) {
	c.pods[types.UID(job+uid)] = &podcache.Pod{
		Namespace: testNamespace, Name: job + uid, UID: types.UID(job + uid), Node: "dgx-1", Running: true,
		CreatedAt: time.Now(), StartedAt: time.Now(), WorkloadType: v1alpha1.WorkloadTrain, Milli: 1000,
		Controller: podcache.Owner{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job + "-uid")},
	}
}

// advance advances the bubble's time and reconciles as the controller requests. Pods of
// suspended Jobs end. A failed call is a crash.
func (c *fakeCluster) advance(span time.Duration) {
	c.t.Helper()
	ctx, end := c.t.Context(), time.Now().Add(span)
	for {
		next := c.maxSleep
		c.beforeReconcile()
		for _, request := range c.reconcileRequests(ctx) {
			result, err := apply.RequeueOnConflict(c.reconciler).Reconcile(ctx, request)
			switch {
			case errors.Is(err, errCrash):
				c.restart()
				next = time.Second
			case err != nil && c.stopErrorsAllowed:
				next = time.Second
			case err != nil:
				c.t.Fatal(err)
			case result.RequeueAfter > 0:
				next = min(next, result.RequeueAfter)
			}
		}
		c.runJobController(ctx)
		c.afterReconcile()
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(next, left))
	}
}

// reconcileRequests resolves the roots of all pods, and returns requests for all clocks.
func (c *fakeCluster) reconcileRequests(ctx context.Context) []reconcile.Request {
	for _, pod := range c.pods {
		if _, err := c.workloads.reconcileOwner(ctx, directOwnerOf(pod)); err != nil {
			c.t.Fatal(err)
		}
	}
	for p := range maps.Clone(c.workloads.roots) {
		if c.workloads.anyPod(p) == nil {
			c.workloads.removeOwner(p)
		}
	}
	keys := map[types.NamespacedName]bool{}
	for key := range c.workloads.owners {
		keys[key] = true
	}
	for _, one := range c.listClocks() {
		keys[client.ObjectKeyFromObject(&one)] = true
	}
	var requests []reconcile.Request
	for key := range keys {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// terminate starts the grace period of a pod.
func (c *fakeCluster) terminate(pod types.UID) {
	c.pods[pod].Deleting, c.pods[pod].GraceEndsAt = true, time.Now().Add(time.Minute)
}

// setNodeReady sets the condition Ready of a node. It creates the node.
func (c *fakeCluster) setNodeReady(name string, ready corev1.ConditionStatus) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.rawClient.Create(c.t.Context(), node); err != nil {
		if err := c.rawClient.Get(c.t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			c.t.Fatal(err)
		}
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if err := c.rawClient.Status().Update(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
}

// runJobController deletes the pods of suspended Jobs and of those past their deadline. Pods
// that are already being deleted stay: their nodes may be lost.
func (c *fakeCluster) runJobController(ctx context.Context) {
	if c.jobControllerDown {
		return
	}
	var jobs batchv1.JobList
	if err := c.client.List(ctx, &jobs); err != nil {
		c.t.Fatal(err)
	}
	for _, j := range jobs.Items {
		if j.DeletionTimestamp != nil {
			continue // the Job controller leaves such a Job alone
		}
		if !ptr.Deref(j.Spec.Suspend, false) && j.Spec.ActiveDeadlineSeconds == nil {
			continue
		}
		if j.Spec.ActiveDeadlineSeconds != nil && len(j.Status.Conditions) == 0 {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}
			if err := c.rawClient.Status().Update(ctx, &j); err != nil {
				c.t.Fatal(err)
			}
		}
		for pod := range c.pods.ControlledBy(j.UID) {
			if !pod.Deleting {
				delete(c.pods, pod.UID)
			}
		}
	}
}

func (c *fakeCluster) listClocks() []v1alpha1.WorkloadClock {
	c.t.Helper()
	var list v1alpha1.WorkloadClockList
	if err := c.client.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// clockOf returns the clock of a Job.
func (c *fakeCluster) clockOf(job string) *v1alpha1.WorkloadClock {
	c.t.Helper()
	var clock v1alpha1.WorkloadClock
	key := client.ObjectKey{Namespace: testNamespace, Name: v1alpha1.WorkloadClockName("batch", "Job", job)}
	if err := c.client.Get(c.t.Context(), key, &clock); err != nil {
		c.t.Fatal(err)
	}
	return &clock
}

// noticeTexts returns kind, due time and phase of the Notices.
func (c *fakeCluster) noticeTexts(start time.Time) (texts []string) {
	c.t.Helper()
	var list v1alpha1.NoticeList
	if err := c.client.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range list.Items {
		text := string(n.Spec.Kind) + " " + n.Spec.DueAt.Sub(start).String()
		if n.Status.Phase == v1alpha1.NoticeSuperseded {
			text += " superseded"
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

func (c *fakeCluster) getJob(name string) *batchv1.Job {
	c.t.Helper()
	var j batchv1.Job
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: testNamespace, Name: name}, &j); err != nil {
		c.t.Fatal(err)
	}
	return &j
}
