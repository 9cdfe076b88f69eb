// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projectend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

const namespace = "thesis"

// gpu and cpu are pod templates with and without GPUs.
const (
	gpu = `{spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
	cpu = `{spec: {containers: [{name: main, image: i}]}}`
)

var closedAt = metav1.NewTime(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))

// cluster is a project's namespace in a fake API server.
type cluster struct {
	*testing.T
	client     client.Client
	reconciler *Reconciler
	// withPods are the names of roots with GPU pods.
	withPods map[string]bool
	synced   bool
	// writes are the patches, lists the listed kinds.
	writes, lists int
	// fail returns the error of a patch.
	fail   func(name string) error
	events *events.FakeRecorder
}

func (c *cluster) RootOf(ctx context.Context, object client.Object) (owner.Root, error) {
	canStop := func(context.Context, *meta.RESTMapping) (bool, error) { return false, nil }
	return owner.NewResolver(c.client, c.client.RESTMapper(), canStop).ResolveObject(ctx, object)
}
func (c *cluster) HasPods(root owner.Root) bool { return c.withPods[root.Name] }
func (c *cluster) IsSynced(string) bool         { return c.synced }

// limiter allows stops, or not.
type limiter bool

func (l limiter) Allow(context.Context, string, time.Time) (bool, error) { return bool(l), nil }

// newObject returns an object from "KIND NAME {...}".
func newObject(t *testing.T, apiVersion, kind, name, rest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(rest), &u.Object); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID("uid-" + name))
	return u
}

// ownedBy sets the controller of an object.
func ownedBy(object, controller *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: controller.GetAPIVersion(), Kind: controller.GetKind(), Name: controller.GetName(), UID: controller.GetUID(), Controller: ptr.To(true),
	}})
	return object
}

func newCluster(t *testing.T, objects ...*unstructured.Unstructured) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kinds := []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), batchv1.SchemeGroupVersion.WithKind("Job"),
		batchv1.SchemeGroupVersion.WithKind("CronJob"),
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"},
	}
	var versions []schema.GroupVersion
	for _, kind := range kinds {
		versions = append(versions, kind.GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"}, Spec: v1alpha1.ProjectSpec{Department: "students"},
		Status: v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectSuspended, ClosedAt: &closedAt, Namespace: &v1alpha1.ProjectNamespace{Name: namespace},
		},
	}
	c := &cluster{T: t, withPods: map[string]bool{}, synced: true, fail: func(string) error { return nil }, events: events.NewFakeRecorder(1000)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(project)
	for _, object := range objects {
		builder.WithObjects(object.DeepCopy())
	}
	c.client = builder.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			c.lists++
			return w.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := c.fail(object.GetName()); err != nil {
				return err
			}
			c.writes++
			return w.Patch(ctx, object, patch, options...)
		},
	}).Build()
	c.reconciler = &Reconciler{
		Client: c.client, Live: c.client, Kinds: mapper, Workloads: c, Stopper: &suspend.Stopper{Client: c.client}, StopLimiter: limiter(true),
		Events: c.events, Clock: policytime.System(),
	}
	return c
}

func (c *cluster) reconcile() (ctrl.Result, error) {
	return c.reconciler.Reconcile(c.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "thesis"}})
}

func (c *cluster) mustReconcile() {
	c.Helper()
	if _, err := c.reconcile(); err != nil {
		c.Fatal(err)
	}
}

// setStatus changes the project's status.
func (c *cluster) setStatus(change func(*v1alpha1.ProjectStatus)) {
	c.Helper()
	project := &v1alpha1.Project{}
	if err := c.client.Get(c.Context(), client.ObjectKey{Name: "thesis"}, project); err != nil {
		c.Fatal(err)
	}
	change(&project.Status)
	if err := c.client.Update(c.Context(), project); err != nil {
		c.Fatal(err)
	}
}

// states returns for each object whether it was stopped and marked.
func (c *cluster) states(objects []*unstructured.Unstructured) map[string]string {
	c.Helper()
	states := map[string]string{}
	for _, object := range objects {
		now := object.DeepCopy()
		if err := c.client.Get(c.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			c.Fatal(err)
		}
		spec, _, _ := unstructured.NestedMap(now.Object, "spec")
		delete(spec, "template")
		state := fmt.Sprint(spec["suspend"], spec["replicas"], spec["active"])
		if mark := now.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]; mark != "" {
			state += " " + mark
		}
		states[object.GetName()] = state
	}
	return states
}

// recorded returns the events.
func (c *cluster) recorded() (texts []string) {
	for len(c.events.Events) > 0 {
		texts = append(texts, <-c.events.Events)
	}
	slices.Sort(texts)
	return texts
}

const mark = " 2026-03-01T00:00:00Z"

// Invariants 4 and 8: everything in the namespace of a suspended project that could ask for GPUs later is stopped by the
// verb of its kind and marked, each object in one write; what has no GPUs, is paused, finished or has a clock stays. A
// second search, as after a restart, writes nothing.
func TestStopsWhatWaits(t *testing.T) {
	job := func(name, rest string) *unstructured.Unstructured { return newObject(t, "batch/v1", "Job", name, rest) }
	deployment := newObject(t, "apps/v1", "Deployment", "web", `{spec: {replicas: 3, template: `+gpu+`}}`)
	cronJob := newObject(t, "batch/v1", "CronJob", "nightly", `{spec: {jobTemplate: {spec: {template: `+gpu+`}}}}`)
	queued := job("queued", `{metadata: {labels: {kueue.x-k8s.io/queue-name: lab}}, spec: {suspend: true, template: `+gpu+`}}`)
	trainJob := newObject(t, "trainer.kubeflow.org/v1alpha1", "TrainJob", "llm", `{spec: {}}`)
	workloadOf := func(o *unstructured.Unstructured, template string) *unstructured.Unstructured {
		w := newObject(t, "kueue.x-k8s.io/v1beta2", "Workload", "w-"+o.GetName(),
			`{metadata: {labels: {kueue.x-k8s.io/job-uid: "`+string(o.GetUID())+`"}}, spec: {podSets: [{template: `+template+`}]}}`)
		return ownedBy(w, o)
	}
	objects := []*unstructured.Unstructured{
		deployment, ownedBy(newObject(t, "apps/v1", "ReplicaSet", "web-1", `{spec: {replicas: 3, template: `+gpu+`}}`), deployment),
		newObject(t, "apps/v1", "Deployment", "site", `{spec: {replicas: 2, template: `+cpu+`}}`),
		newObject(t, "apps/v1", "StatefulSet", "db", `{spec: {replicas: 0, template: `+gpu+`}}`),
		cronJob, job("pending", `{spec: {template: `+gpu+`}}`), job("cpu", `{spec: {template: `+cpu+`}}`),
		job("paused", `{spec: {suspend: true, template: `+gpu+`}}`), job("running", `{spec: {template: `+gpu+`}}`),
		job("done", `{spec: {template: `+gpu+`}, status: {conditions: [{type: Complete, status: "True"}]}}`),
		queued, workloadOf(queued, gpu), trainJob, workloadOf(trainJob, gpu),
	}
	c := newCluster(t, objects...)
	c.withPods["running"] = true
	c.mustReconcile()
	want := map[string]string{
		"web": "<nil> 0 <nil>" + mark, "web-1": "<nil> 3 <nil>", "site": "<nil> 2 <nil>", "db": "<nil> 0 <nil>",
		"nightly": "true <nil> <nil>" + mark, "pending": "true <nil> <nil>" + mark, "cpu": "<nil> <nil> <nil>",
		"paused": "true <nil> <nil>", "running": "<nil> <nil> <nil>", "done": "<nil> <nil> <nil>",
		"queued": "true <nil> <nil>" + mark, "w-queued": "<nil> <nil> false" + mark,
		"llm": "true <nil> <nil>" + mark, "w-llm": "<nil> <nil> false" + mark,
	}
	if diff := cmp.Diff(want, c.states(objects)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	writes, noted := c.writes, c.recorded()
	if writes != 7 || len(noted) != 5 {
		t.Errorf("%d writes and %d events, want 7 and 5: %v", writes, len(noted), noted)
	}
	c.mustReconcile()
	if c.writes != writes || len(c.recorded()) > 0 {
		t.Errorf("%d writes by a second search", c.writes-writes)
	}

	// After the renewal nothing starts by itself; the marks are removed, and events say how to start each.
	c.setStatus(func(s *v1alpha1.ProjectStatus) { s.Phase, s.ClosedAt = v1alpha1.ProjectActive, nil })
	c.mustReconcile()
	for name, state := range want {
		want[name] = strings.TrimSuffix(state, mark)
	}
	if diff := cmp.Diff(want, c.states(objects)); diff != "" {
		t.Errorf("after the renewal (-want +got)\n%s", diff)
	}
	commands := strings.Join(c.recorded(), "\n")
	for _, command := range []string{
		"kubectl scale deployments.apps/web -n thesis --replicas=3",
		`kubectl patch cronjobs.batch/nightly -n thesis --type=merge -p '{"spec":{"suspend":false}}'`,
		`kubectl patch trainjobs.trainer.kubeflow.org/llm -n thesis --type=merge -p '{"spec":{"suspend":false}}'`,
		`kubectl patch jobs.batch/pending -n thesis --type=merge -p '{"spec":{"suspend":false}}'`,
		"kubectl get workloads.kueue.x-k8s.io -n thesis -l kueue.x-k8s.io/job-uid=uid-queued -o name | xargs kubectl patch",
	} {
		if !strings.Contains(commands, command) {
			t.Errorf("no event has %s:\n%s", command, commands)
		}
	}
}

// The mark is the time at which the project was closed, so that another phase of the closed project changes nothing, and
// the deletion of the project stops what is left.
func TestMarkIsStable(t *testing.T) {
	job := newObject(t, "batch/v1", "Job", "late", `{spec: {template: `+gpu+`}}`)
	c := newCluster(t, job)
	c.setStatus(func(s *v1alpha1.ProjectStatus) {
		s.Phase, s.PhaseSince = v1alpha1.ProjectPendingDeletion, ptr.To(metav1.NewTime(closedAt.Add(time.Hour)))
	})
	c.mustReconcile()
	if got := c.states([]*unstructured.Unstructured{job})["late"]; got != "true <nil> <nil>"+mark {
		t.Errorf("%s", got)
	}
	for name, tc := range map[string]struct {
		status v1alpha1.ProjectStatus
		want   time.Time
	}{
		"closed":         {v1alpha1.ProjectStatus{ClosedAt: &closedAt, PhaseSince: ptr.To(metav1.NewTime(closedAt.Add(time.Hour)))}, closedAt.Time},
		"not yet closed": {v1alpha1.ProjectStatus{PhaseSince: &closedAt}, closedAt.Time},
		"unknown":        {v1alpha1.ProjectStatus{}, closedAt.Add(time.Minute)},
		"in the future":  {v1alpha1.ProjectStatus{ClosedAt: ptr.To(metav1.NewTime(closedAt.Add(time.Hour)))}, closedAt.Add(time.Minute)},
	} {
		if got := closedSince(&v1alpha1.Project{Status: tc.status}, closedAt.Add(time.Minute)); !got.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Nothing is listed or stopped in a project that stops nothing, before the pods are known, and while the stop limiter
// defers a suspension that changed terms brought forward.
func TestWaits(t *testing.T) {
	early := func(s *v1alpha1.ProjectStatus) {
		s.Expiry = &v1alpha1.ProjectExpiry{ShortenedFrom: ptr.To(metav1.NewTime(time.Now().Add(time.Hour)))}
	}
	for name, tc := range map[string]struct {
		change func(c *cluster)
		stops  bool
		lists  bool
	}{
		"suspended":                     {func(*cluster) {}, true, true},
		"before the pods are known":     {func(c *cluster) { c.synced = false }, false, false},
		"deferred by the limiter":       {func(c *cluster) { c.setStatus(early); c.reconciler.StopLimiter = limiter(false) }, false, false},
		"allowed by the limiter":        {func(c *cluster) { c.setStatus(early) }, true, true},
		"the limiter holds other stops": {func(c *cluster) { c.reconciler.StopLimiter = limiter(false) }, true, true},
		"expired":                       {func(c *cluster) { c.setStatus(func(s *v1alpha1.ProjectStatus) { s.Phase = v1alpha1.ProjectExpired }) }, false, true},
		"awaits a decision, still usable": {func(c *cluster) {
			c.setStatus(func(s *v1alpha1.ProjectStatus) { s.Phase, s.ClosedAt = v1alpha1.ProjectPendingDeletion, nil })
		}, false, true},
		"without a namespace": {func(c *cluster) { c.setStatus(func(s *v1alpha1.ProjectStatus) { s.Namespace = nil }) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newObject(t, "batch/v1", "Job", "pending", `{spec: {template: `+gpu+`}}`))
			tc.change(c)
			c.lists = 0
			c.mustReconcile()
			if (c.writes > 0) != tc.stops || (c.lists > 0) != tc.lists {
				t.Errorf("%d writes, %d lists", c.writes, c.lists)
			}
		})
	}
	for name, tc := range map[string]struct {
		before, after v1alpha1.ProjectPhase
		want          bool
	}{
		"expires": {v1alpha1.ProjectActive, v1alpha1.ProjectExpired, false}, "is suspended": {v1alpha1.ProjectExpired, v1alpha1.ProjectSuspended, true},
		"is renewed": {v1alpha1.ProjectSuspended, v1alpha1.ProjectActive, true}, "rests": {v1alpha1.ProjectSuspended, v1alpha1.ProjectSuspended, false},
	} {
		object := func(phase v1alpha1.ProjectPhase) *v1alpha1.Project {
			return &v1alpha1.Project{Status: v1alpha1.ProjectStatus{Phase: phase}}
		}
		if got := (&Reconciler{}).stopsOrReleases().Update(event.UpdateEvent{ObjectOld: object(tc.before), ObjectNew: object(tc.after)}); got != tc.want {
			t.Errorf("a project that %s: %v", name, got)
		}
	}
}

// Invariant 8: after a crash between a renewal and the release of what the suspension stopped, the next start releases it.
func TestStartReleasesWhatACrashLeft(t *testing.T) {
	now := time.Now()
	created := (&Reconciler{Clock: policytime.System()}).stopsOrReleases().Create
	for name, tc := range map[string]struct {
		phase v1alpha1.ProjectPhase
		since time.Time
		want  bool
	}{
		"renewed of late":  {v1alpha1.ProjectActive, now.Add(-time.Hour), true},
		"renewed long ago": {v1alpha1.ProjectActive, now.Add(-48 * time.Hour), false},
		"expired of late":  {v1alpha1.ProjectExpired, now.Add(-time.Hour), false},
		"suspended":        {v1alpha1.ProjectSuspended, now.Add(-48 * time.Hour), true},
	} {
		project := &v1alpha1.Project{Status: v1alpha1.ProjectStatus{Phase: tc.phase, PhaseSince: ptr.To(metav1.NewTime(tc.since))}}
		if got := created(event.CreateEvent{Object: project, IsInInitialList: true}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if created(event.CreateEvent{Object: &v1alpha1.Project{Status: v1alpha1.ProjectStatus{
		Phase: v1alpha1.ProjectActive, PhaseSince: ptr.To(metav1.NewTime(now)),
	}}}) {
		t.Error("a new project is searched")
	}
}

// What cannot be stopped is named on the project, and does not hold up the rest. An error that can pass is repeated until
// all is stopped, with one write for each object (invariant 8).
func TestContinuesAfterErrors(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		objects = append(objects, newObject(t, "batch/v1", "Job", name, `{spec: {template: `+gpu+`}}`))
	}
	c := newCluster(t, objects...)
	failures := map[string]int{"b": 1}
	c.fail = func(name string) error {
		switch {
		case name == "a":
			return apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, name, errors.New("no rule"))
		case failures[name] > 0:
			failures[name]--
			return errors.New("connection refused")
		}
		return nil
	}
	if _, err := c.reconcile(); err == nil || c.writes != 2 {
		t.Fatalf("%v, %d writes, want the error and the stops of c and d", err, c.writes)
	}
	c.mustReconcile()
	got := c.states(objects)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if stopped := strings.HasSuffix(got[name], mark); stopped != (name != "a") {
			t.Errorf("%s: %s", name, got[name])
		}
	}
	if noted := strings.Join(c.recorded(), "\n"); c.writes != 3 || !strings.Contains(noted, "WorkloadsNotStopped Sluice cannot stop Job a: ") {
		t.Errorf("%d writes, events:\n%s", c.writes, noted)
	}
}

// The message names few of many workloads.
func TestDescribeUnstoppable(t *testing.T) {
	got := describeUnstoppable([]string{"Job a", "Job b", "Job c", "Job d", "Job e", "Job f", "Job g"})
	if !strings.HasPrefix(got, "Sluice cannot stop Job a, Job b, Job c, Job d, Job e and 2 more: ") {
		t.Error(got)
	}
}
