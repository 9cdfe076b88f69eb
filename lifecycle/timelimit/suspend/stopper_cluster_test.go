// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, installManifests)
}

// installManifests installs the operators' kinds and lifecycle's permissions.
func installManifests(ctx context.Context, c *clustertest.Cluster) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	raw, err := os.ReadFile("testdata/definitions.yaml")
	if err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		definition := &unstructured.Unstructured{}
		if err := decoder.Decode(&definition.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if err := admin.Create(ctx, definition); err != nil {
			return err
		}
	}
	installed, err := manifests.Build(manifests.Base)
	if err != nil {
		return err
	}
	for _, object := range installed {
		if object.GetName() == roleName {
			if err := admin.Create(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// testCluster is a namespace of an embedded cluster.
type testCluster struct {
	*testing.T
	client.Client
	namespace string
	// stopper has only the installed permissions.
	stopper *suspend.Stopper
}

func newTestCluster(t *testing.T) testCluster {
	t.Helper()
	c := clustertest.Start(t)
	return testCluster{t, newClient(t, c.Config()), clustertest.Namespace(t, c), newStopperAs(t, c.Config(), "system:serviceaccount:sluice-system:lifecycle")}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	made, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func newStopperAs(t *testing.T, config *rest.Config, user string) *suspend.Stopper {
	t.Helper()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return &suspend.Stopper{Client: newClient(t, config)}
}

// create creates an object with the name x. It retries, because a new kind is not served at
// once.
func (p testCluster) create(text string) *unstructured.Unstructured {
	p.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		p.Fatal(err)
	}
	object.SetNamespace(p.namespace)
	if object.GetName() == "" {
		object.SetName("x")
	}
	clustertest.Eventually(p.T, func() error { return p.Create(p.Context(), object) })
	return object
}

func (p testCluster) get(of *unstructured.Unstructured) *unstructured.Unstructured {
	p.Helper()
	object := of.DeepCopy()
	if err := p.Get(p.Context(), client.ObjectKeyFromObject(of), object); err != nil {
		p.Fatal(err)
	}
	return object
}

func (p testCluster) patchObject(of *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	p.Helper()
	object := of.DeepCopy()
	if err := p.Patch(p.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		p.Fatal(err)
	}
	return object
}

func (p testCluster) waitForState(object *unstructured.Unstructured, want suspend.State) {
	p.Helper()
	clustertest.Eventually(p.T, func() error {
		got, err := p.stopper.ObserveState(p.Context(), targetOf(object))
		if err != nil || got != want {
			return fmt.Errorf("%s is %s (%w), want %s", object.GetKind(), got, err, want)
		}
		return nil
	})
}

const podTemplateYAML = `template: {metadata: {labels: {app: x}}, spec: {restartPolicy: RESTART, containers: [{name: main, image: torch}]}}`

func podTemplate(restart corev1.RestartPolicy) string {
	return strings.Replace(podTemplateYAML, "RESTART", string(restart), 1)
}

// Each kind against the API server and its controllers, with lifecycle's permissions: stopped,
// observed as stopped, released, started with StartCommands, and observed as running.
func TestStopAndReleaseInCluster(t *testing.T) {
	workload := func(version, kind, spec string) string {
		return "{apiVersion: " + version + ", kind: " + kind + ", spec: {" + spec + "}}"
	}
	scaled := "replicas: 3, selector: {matchLabels: {app: x}}, " + podTemplate(corev1.RestartPolicyAlways)
	tests := []struct {
		text, start string // start: the patch of the start command
	}{
		{workload("batch/v1", "Job", podTemplate(corev1.RestartPolicyNever)), `{"spec":{"suspend":false}}`},
		{workload("batch/v1", "CronJob", "schedule: 0 0 1 1 *, jobTemplate: {spec: {"+podTemplate(corev1.RestartPolicyNever)+"}}"), `{"spec":{"suspend":false}}`},
		{workload("apps/v1", "Deployment", scaled), `{"spec":{"replicas":3}}`},
		{workload("apps/v1", "StatefulSet", "serviceName: x, "+scaled), `{"spec":{"replicas":3}}`},
		{workload("apps/v1", "ReplicaSet", scaled), `{"spec":{"replicas":3}}`},
		{workload("v1", "ReplicationController", "replicas: 3, selector: {app: x}, "+podTemplate(corev1.RestartPolicyAlways)), `{"spec":{"replicas":3}}`},
		{workload("jobset.x-k8s.io/v1alpha2", "JobSet", ""), `{"spec":{"suspend":false}}`},
		{workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", ""), `{"spec":{"replicas":1}}`},
		{workload("kubeflow.org/v1", "Notebook", ""), `{"metadata":{"annotations":{"kubeflow-resource-stopped":null}}}`},
		{workload("kubeflow.org/v1", "PyTorchJob", ""), `{"spec":{"runPolicy":{"suspend":false}}}`},
		{workload("ray.io/v1", "RayCluster", ""), `{"spec":{"suspend":null}}`},
		{workload("kueue.x-k8s.io/v1beta1", "Workload", ""), `{"spec":{"active":true}}`},
		{workload("serving.kserve.io/v1beta1", "InferenceService", ""), `{"metadata":{"annotations":{"serving.kserve.io/stop":null}}}`},
	}
	for _, tc := range tests {
		kind := strings.Fields(strings.SplitAfter(tc.text, "kind: ")[1])[0]
		t.Run(strings.TrimSuffix(kind, ","), func(t *testing.T) {
			p := newTestCluster(t)
			object := p.create(tc.text)
			p.waitForState(object, suspend.StateRunning)
			if err := p.stopper.Stop(t.Context(), targetOf(object), stopUntil, "48h are over"); err != nil {
				t.Fatal(err)
			}
			stopped := p.get(object)
			if at, is := workloadkind.ParseStoppedUntil(stopped); workloadkind.RequestsPods(stopped) || !is || !at.Equal(stopUntil) {
				t.Fatalf("stopped: %v", stopped.Object)
			}
			p.waitForState(object, suspend.StateStopped)
			quiet := &suspend.Stopper{Client: &racingClient{Client: p.stopper.Client, beforeWrite: func() { t.Error("the second stop wrote again") }}}
			if err := quiet.Stop(t.Context(), targetOf(object), stopUntil, "48h are over"); err != nil {
				t.Error(err)
			}
			if commands, err := p.stopper.StartCommands(t.Context(), targetOf(object)); err != nil || len(commands) != 1 {
				t.Errorf("started by %q (%v)", commands, err)
			}
			if err := p.stopper.Release(t.Context(), targetOf(object)); err != nil {
				t.Fatal(err)
			}
			released := p.get(object)
			if _, is := workloadkind.ParseStoppedUntil(released); is || workloadkind.RequestsPods(released) {
				t.Fatalf("released: %v", released.Object)
			}
			if started := p.patchObject(object, tc.start); !workloadkind.StartsWorkload(released, started) {
				t.Errorf("the start is not observed: %v", started.Object)
			}
		})
	}
}

// A bare pod gets a condition before its deletion.
func TestStopPodInCluster(t *testing.T) {
	p := newTestCluster(t)
	pod := p.create(`{apiVersion: v1, kind: Pod, metadata: {finalizers: [test.sluice.dev/hold]}, spec: {containers: [{name: main, image: torch}]}}`)
	if err := p.stopper.Stop(t.Context(), targetOf(pod), stopUntil, "48h are over"); err != nil {
		t.Fatal(err)
	}
	// A pod without node is deleted at once, except for the finalizer.
	going := p.get(pod)
	if going.GetDeletionTimestamp() == nil {
		t.Fatal("it is not being deleted")
	}
	conditions, _, _ := unstructured.NestedSlice(going.Object, "status", "conditions")
	found := false
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		found = found || condition["type"] == string(corev1.DisruptionTarget) && condition["message"] == "48h are over" && condition["reason"] == suspend.ReasonStopped
	}
	if !found {
		t.Errorf("conditions: %v", conditions)
	}
	if err := p.stopper.Stop(t.Context(), targetOf(pod), stopUntil, ""); err != nil {
		t.Errorf("stopped while being deleted: %v", err)
	}
	p.patchObject(pod, `{"metadata":{"finalizers":null}}`)
	p.waitForState(pod, suspend.StateGone)
}

// EvictPod evicts the pod with the UID and no other, also one that terminates with a long grace
// period, which it shortens.
func TestEvictPodInCluster(t *testing.T) {
	p := newTestCluster(t)
	pod := p.create(`{apiVersion: v1, kind: Pod, metadata: {finalizers: [test.sluice.dev/hold]}, spec: {containers: [{name: main, image: torch}]}}`)
	other := targetOf(pod)
	other.UID = "uid-of-the-one-before"
	if err := p.stopper.EvictPod(t.Context(), other, nil, "48h are over"); err != nil {
		t.Error(err)
	}
	if kept := p.get(pod); kept.GetDeletionTimestamp() != nil {
		t.Error("another pod was evicted")
	}
	for range 2 {
		if err := p.stopper.EvictPod(t.Context(), targetOf(pod), ptr.To[int64](30), "48h are over"); err != nil {
			t.Error(err)
		}
	}
	if going := p.get(pod); going.GetDeletionTimestamp() == nil {
		t.Error("it is not being deleted")
	}
	p.patchObject(pod, `{"metadata":{"finalizers":null}}`)
	p.waitForState(pod, suspend.StateGone)
	if err := p.stopper.EvictPod(t.Context(), targetOf(pod), nil, ""); err != nil {
		t.Errorf("a pod that is gone: %v", err)
	}
}

// An object that has the name now is not stopped.
func TestRecreatedPodIsNotStoppedInCluster(t *testing.T) {
	const job = `{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`
	const pod = `{apiVersion: v1, kind: Pod, spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: torch}]}}`
	for _, text := range []string{job, pod} {
		p := newTestCluster(t)
		first := p.create(text)
		if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		p.waitForState(first, suspend.StateGone)
		second := p.create(text)
		if err := p.stopper.Stop(t.Context(), targetOf(first), stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
			t.Errorf("%v", err)
		}
		if !workloadkind.RequestsPods(p.get(second)) {
			t.Errorf("the new %s was stopped", second.GetKind())
		}
	}
}

// racingClient calls a function between read and write.
type racingClient struct {
	client.Client
	beforeWrite func()
}

func (r *racingClient) runBeforeWrite() {
	if between := r.beforeWrite; between != nil {
		r.beforeWrite = nil
		between()
	}
}

func (r *racingClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	r.runBeforeWrite()
	return r.Client.Patch(ctx, object, patch, opts...)
}

func (r *racingClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	r.runBeforeWrite()
	return r.Client.Delete(ctx, object, opts...)
}

// The object was changed or replaced between read and write.
func TestConcurrentChangesInCluster(t *testing.T) {
	const cluster = `{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`
	const pod = `{apiVersion: v1, kind: Pod, spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: torch}]}}`
	t.Run("changed", func(t *testing.T) {
		p := newTestCluster(t)
		object := p.create(cluster)
		r := &racingClient{Client: p.stopper.Client, beforeWrite: func() { p.patchObject(object, `{"spec":{"size":7}}`) }}
		if err := (&suspend.Stopper{Client: r}).Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
			t.Fatal(err)
		}
		size, _, _ := unstructured.NestedInt64(p.get(object).Object, "spec", "size")
		if size != 7 || workloadkind.RequestsPods(p.get(object)) {
			t.Errorf("%v", p.get(object).Object)
		}
	})
	t.Run("changed three times, then replaced", func(t *testing.T) {
		p := newTestCluster(t)
		first := p.create(cluster)
		var second *unstructured.Unstructured
		r := &racingClient{Client: p.stopper.Client}
		changes := 0
		var change func()
		change = func() {
			if changes++; changes < 4 {
				p.patchObject(first, fmt.Sprintf(`{"spec":{"size":%d}}`, changes))
				r.beforeWrite = change
				return
			}
			if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
				t.Error(err)
			}
			p.waitForState(first, suspend.StateGone)
			second = p.create(cluster)
		}
		r.beforeWrite = change
		if err := (&suspend.Stopper{Client: r}).Stop(t.Context(), targetOf(first), stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
			t.Errorf("%v", err)
		}
		if second == nil || !workloadkind.RequestsPods(p.get(second)) {
			t.Error("the new object was stopped")
		}
	})
	for _, text := range []string{cluster, pod} {
		t.Run("replaced", func(t *testing.T) {
			p := newTestCluster(t)
			first := p.create(text)
			var second *unstructured.Unstructured
			r := &racingClient{Client: p.stopper.Client, beforeWrite: func() {
				if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				p.waitForState(first, suspend.StateGone)
				second = p.create(text)
			}}
			if err := (&suspend.Stopper{Client: r}).Stop(t.Context(), targetOf(first), stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
				t.Errorf("%v", err)
			}
			if !workloadkind.RequestsPods(p.get(second)) {
				t.Error("the new object was stopped")
			}
		})
	}
}

// Kueue Workloads are found by the UID of their Job.
func TestStopQueuedJobInCluster(t *testing.T) {
	p := newTestCluster(t)
	job := p.create(`{apiVersion: batch/v1, kind: Job, spec: {` + podTemplate(corev1.RestartPolicyNever) + `}}`)
	workload := p.create(`{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {name: job-x, labels: {kueue.x-k8s.io/job-uid: ` + string(job.GetUID()) + `}}, spec: {}}`)
	if err := p.stopper.Stop(t.Context(), targetOf(job), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	if workloadkind.RequestsPods(p.get(job)) || workloadkind.RequestsPods(p.get(workload)) {
		t.Error("one of the two requests pods")
	}
	commands, err := p.stopper.StartCommands(t.Context(), targetOf(job))
	if err != nil || len(commands) != 1 || !strings.Contains(commands[0], "workloads.kueue.x-k8s.io/job-x") {
		t.Errorf("started by %q (%v)", commands, err)
	}
}

// A stopped run of a CronJob fails and keeps its history, and the CronJob starts the next run
// although it forbids concurrent ones. Both runs are overdue, so that the test does not wait for a minute to begin.
func TestStopCronJobRunInCluster(t *testing.T) {
	p := newTestCluster(t)
	schedule := p.create(`{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "0 0 1 1 *", concurrencyPolicy: Forbid, jobTemplate: {spec: {` +
		podTemplate(corev1.RestartPolicyNever) + `}}}}`)
	// The run of the last January 1 was missed. Without a starting deadline, the controller starts it at once.
	missed := fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, time.Now().AddDate(-1, 0, -1).UTC().Format(time.RFC3339))
	if err := p.Status().Patch(t.Context(), schedule.DeepCopy(), client.RawPatch(types.MergePatchType, missed)); err != nil {
		t.Fatal(err)
	}
	runs := func() (items []batchv1.Job) {
		var all batchv1.JobList
		if err := p.List(t.Context(), &all, client.InNamespace(p.namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			if metav1.IsControlledBy(&all.Items[i], schedule) && all.Items[i].Status.Active > 0 {
				items = append(items, all.Items[i])
			}
		}
		return items
	}
	nextRun := func() (run batchv1.Job) {
		clustertest.Eventually(t, func() error {
			active := runs()
			if len(active) != 1 {
				return fmt.Errorf("%d active runs", len(active))
			}
			run = active[0]
			return nil
		})
		return run
	}
	first := nextRun()
	// The next run is due while the first is active. Until the CronJob records the first, it does not hold the next back.
	clustertest.Eventually(t, func() error {
		var recorded batchv1.CronJob
		if err := p.Get(t.Context(), client.ObjectKeyFromObject(schedule), &recorded); err != nil {
			return err
		}
		if len(recorded.Status.Active) != 1 {
			return fmt.Errorf("the CronJob records the active runs %v", recorded.Status.Active)
		}
		return nil
	})
	everyMinute := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedule":"* * * * *"}}`))
	if err := p.Patch(t.Context(), schedule.DeepCopy(), everyMinute); err != nil {
		t.Fatal(err)
	}
	target := suspend.Target{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), Namespace: p.namespace, Name: first.Name, UID: first.UID}
	if err := p.stopper.Stop(t.Context(), target, stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		if err := p.Get(t.Context(), client.ObjectKeyFromObject(&first), &first); err != nil {
			return err
		}
		for _, c := range first.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded {
				return nil
			}
		}
		return fmt.Errorf("the run has the conditions %v", first.Status.Conditions)
	})
	if next := nextRun(); next.UID == first.UID {
		t.Error("the stopped run is active")
	}
}

// Without permission, or for an unsupported kind, Stop returns an error and changes nothing.
func TestUnsupportedKindsInCluster(t *testing.T) {
	p := newTestCluster(t)
	c := clustertest.Start(t)
	owned := func(kind string) string {
		return "{apiVersion: example.org/v1, kind: " + kind + ", spec: {suspend: false, workers: {count: 4}}}"
	}
	farm, ranch, meadow := p.create(owned("Farm")), p.create(owned("Ranch")), p.create(owned("Meadow"))
	for _, object := range []*unstructured.Unstructured{farm, ranch, meadow} {
		if err := p.stopper.Stop(t.Context(), targetOf(object), stopUntil, ""); !errors.Is(err, suspend.ErrForbidden) || !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", object.GetKind(), err)
		}
	}
	node := suspend.Target{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Name: "dgx-01", UID: "u"}
	if err := p.stopper.Stop(t.Context(), node, stopUntil, ""); !errors.Is(err, suspend.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	lease := p.create(`{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {}}`)
	if err := newStopperAs(t, c.Config(), "admin").Stop(t.Context(), targetOf(lease), stopUntil, ""); err == nil {
		t.Error("a Lease was stopped")
	}

	grantPermissions(t, p, "farms", "ranches", "meadows")
	for _, object := range []*unstructured.Unstructured{farm, ranch} {
		clustertest.Eventually(t, func() error { return p.stopper.Stop(t.Context(), targetOf(object), stopUntil, "") })
		p.waitForState(object, suspend.StateStopped)
	}
	if count, _, _ := unstructured.NestedInt64(p.get(farm).Object, "spec", "workers", "count"); count != 0 {
		t.Errorf("%d workers", count)
	}
	if err := p.stopper.Stop(t.Context(), targetOf(meadow), stopUntil, ""); !errors.Is(err, suspend.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	deleting := &suspend.Stopper{Client: p.stopper.Client, DeleteUnknownKinds: true}
	if err := deleting.Stop(t.Context(), targetOf(meadow), stopUntil, ""); err != nil {
		t.Error(err)
	}
	// The garbage collector discovers a new kind after half a minute.
	var going unstructured.Unstructured
	going.SetGroupVersionKind(meadow.GroupVersionKind())
	err := p.Get(t.Context(), client.ObjectKeyFromObject(meadow), &going)
	if err == nil && (going.GetDeletionTimestamp() == nil || !slices.Contains(going.GetFinalizers(), metav1.FinalizerDeleteDependents)) {
		t.Errorf("it is not being deleted in the foreground: %v", going.Object)
	}
	if client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// grantPermissions grants lifecycle permissions for unknown kinds until the test ends.
func grantPermissions(t *testing.T, p testCluster, resources ...string) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.org"}, Resources: resources, Verbs: []string{"get", "patch", "delete"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "sluice-system", Name: "lifecycle"}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := p.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
}

// The author used up the size limit of annotations.
func TestStopWithFullAnnotationsInCluster(t *testing.T) {
	p := newTestCluster(t)
	const limit, key = 256 << 10, "mine"
	object := p.create(`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {annotations: {` + key + `: ` + strings.Repeat("x", limit-len(key)) + `}}, spec: {}}`)
	if err := p.stopper.Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	stopped := p.get(object)
	if _, marked := workloadkind.ParseStoppedUntil(stopped); marked || workloadkind.RequestsPods(stopped) {
		t.Errorf("annotated: %v, requests pods: %v", marked, workloadkind.RequestsPods(stopped))
	}
}

// Concurrent writers do not prevent the stop.
func TestStopDuringConcurrentWrites(t *testing.T) {
	p := newTestCluster(t)
	object := p.create(`{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_ = p.Status().Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"beat":%d}}`, i)))
		}
	}()
	clustertest.Eventually(t, func() error {
		err := p.stopper.Stop(t.Context(), targetOf(object), stopUntil, "")
		if err != nil && !errors.Is(err, suspend.ErrConflict) {
			t.Errorf("%v", err)
		}
		return err
	})
	cancel()
	<-done
	if workloadkind.RequestsPods(p.get(object)) {
		t.Error("it requests pods")
	}
}

// A StatefulSet with pods that are not ready or have finalizers would keep its other pods
// forever.
func TestStopBlockedStatefulSet(t *testing.T) {
	const ready, unready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`
	const finalizer = `{"metadata":{"finalizers":["test.sluice.dev/hold"]}}`
	tests := map[string]struct {
		hold func(p testCluster, pods []*unstructured.Unstructured)
		// held is the number of pods that remain.
		held int
	}{
		"never ready": {hold: func(p testCluster, pods []*unstructured.Unstructured) {
			for _, pod := range pods {
				p.patchStatus(pod, unready)
			}
		}},
		"a finalizer": {held: 1, hold: func(p testCluster, pods []*unstructured.Unstructured) { p.patchObject(pods[2], finalizer) }},
		"nothing":     {hold: func(testCluster, []*unstructured.Unstructured) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTestCluster(t)
			set := p.create(`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: x, replicas: 3, selector: {matchLabels: {app: x}}, ` + podTemplate(corev1.RestartPolicyAlways) + `}}`)
			var pods []*unstructured.Unstructured
			for i := range 3 {
				pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
				pod.SetNamespace(p.namespace)
				pod.SetName(fmt.Sprintf("x-%d", i))
				clustertest.Eventually(t, func() error { return p.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) })
				p.patchStatus(pod, ready)
				pods = append(pods, pod)
			}
			tc.hold(p, pods)
			t.Cleanup(func() {
				for _, pod := range pods {
					_ = p.Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
			})
			clustertest.Eventually(t, func() error {
				if err := p.stopper.Stop(t.Context(), targetOf(set), stopUntil, ""); err != nil {
					t.Errorf("%v", err)
				}
				left, running := 0, []string{}
				for _, pod := range pods {
					now := pod.DeepCopy()
					err := p.Get(t.Context(), client.ObjectKeyFromObject(pod), now)
					if client.IgnoreNotFound(err) != nil {
						return err
					}
					if err == nil {
						left++
					}
					if err == nil && now.GetDeletionTimestamp() == nil {
						running = append(running, now.GetName())
					}
				}
				if len(running) > 0 || left != tc.held {
					return fmt.Errorf("%d pods remain, running: %v", left, running)
				}
				return nil
			})
		})
	}
}

func (p testCluster) patchStatus(of *unstructured.Unstructured, patch string) {
	p.Helper()
	if err := p.Status().Patch(p.Context(), of.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		p.Fatal(err)
	}
}
