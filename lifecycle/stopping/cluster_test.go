// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping_test

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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/stopping"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, install)
}

// install makes the API server know the operators' kinds, and lifecycle's rights.
func install(ctx context.Context, c *cluster.Cluster) error {
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

// place is a namespace of a real cluster.
type place struct {
	*testing.T
	client.Client
	namespace string
	// lifecycle acts with the rights that are installed, and no others.
	lifecycle *stopping.Stopper
}

func newPlace(t *testing.T) place {
	t.Helper()
	c := clustertest.Start(t)
	return place{t, clientOf(t, c.Config()), clustertest.Namespace(t, c), stopperAs(t, c.Config(), "system:serviceaccount:sluice-system:lifecycle")}
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	made, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func stopperAs(t *testing.T, config *rest.Config, user string) *stopping.Stopper {
	t.Helper()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return &stopping.Stopper{Client: clientOf(t, config)}
}

// made makes an object called x. A kind is served a moment after its definition.
func (p place) made(text string) *unstructured.Unstructured {
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

func (p place) now(of *unstructured.Unstructured) *unstructured.Unstructured {
	p.Helper()
	object := of.DeepCopy()
	if err := p.Get(p.Context(), client.ObjectKeyFromObject(of), object); err != nil {
		p.Fatal(err)
	}
	return object
}

func (p place) merge(of *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	p.Helper()
	object := of.DeepCopy()
	if err := p.Patch(p.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		p.Fatal(err)
	}
	return object
}

func (p place) eventually(object *unstructured.Unstructured, want stopping.State) {
	p.Helper()
	clustertest.Eventually(p.T, func() error {
		got, err := p.lifecycle.State(p.Context(), target(object))
		if err != nil || got != want {
			return fmt.Errorf("%s is %s (%w), want %s", object.GetKind(), got, err, want)
		}
		return nil
	})
}

const pods = `template: {metadata: {labels: {app: x}}, spec: {restartPolicy: RESTART, containers: [{name: main, image: torch}]}}`

func podTemplate(restart corev1.RestartPolicy) string {
	return strings.Replace(pods, "RESTART", string(restart), 1)
}

// The whole life of each kind against the API server and its controllers, with
// lifecycle's own rights: stopped, seen to be, let go, started with the command
// that its owner is told, and that start seen.
func TestInACluster(t *testing.T) {
	workload := func(version, kind, spec string) string {
		return "{apiVersion: " + version + ", kind: " + kind + ", spec: {" + spec + "}}"
	}
	scaled := "replicas: 3, selector: {matchLabels: {app: x}}, " + podTemplate(corev1.RestartPolicyAlways)
	tests := []struct {
		text, start string // start: the patch that the command means
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
			p := newPlace(t)
			object := p.made(tc.text)
			p.eventually(object, stopping.Running)
			if err := p.lifecycle.Stop(t.Context(), target(object), until, "48h are over"); err != nil {
				t.Fatal(err)
			}
			stopped := p.now(object)
			if at, is := kinds.StoppedUntil(stopped); kinds.AsksToRun(stopped) || !is || !at.Equal(until) {
				t.Fatalf("stopped: %v", stopped.Object)
			}
			p.eventually(object, stopping.Stopped)
			quiet := &stopping.Stopper{Client: &racing{Client: p.lifecycle.Client, between: func() { t.Error("stopped twice, it is written twice") }}}
			if err := quiet.Stop(t.Context(), target(object), until, "48h are over"); err != nil {
				t.Error(err)
			}
			if commands, err := p.lifecycle.Commands(t.Context(), target(object)); err != nil || len(commands) != 1 {
				t.Errorf("started by %q (%v)", commands, err)
			}
			if err := p.lifecycle.Release(t.Context(), target(object)); err != nil {
				t.Fatal(err)
			}
			released := p.now(object)
			if _, is := kinds.StoppedUntil(released); is || kinds.AsksToRun(released) {
				t.Fatalf("released: %v", released.Object)
			}
			if started := p.merge(object, tc.start); !kinds.Starts(released, started) {
				t.Errorf("its start is not seen: %v", started.Object)
			}
		})
	}
}

// A pod without a controller says why it goes.
func TestAPodInACluster(t *testing.T) {
	p := newPlace(t)
	pod := p.made(`{apiVersion: v1, kind: Pod, metadata: {finalizers: [test.sluice.dev/look]}, spec: {containers: [{name: main, image: torch}]}}`)
	if err := p.lifecycle.Stop(t.Context(), target(pod), until, "48h are over"); err != nil {
		t.Fatal(err)
	}
	// One that no node runs yet goes at once, but for the finalizer.
	going := p.now(pod)
	if going.GetDeletionTimestamp() == nil {
		t.Fatal("it is not being deleted")
	}
	conditions, _, _ := unstructured.NestedSlice(going.Object, "status", "conditions")
	said := false
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		said = said || condition["type"] == string(corev1.DisruptionTarget) && condition["message"] == "48h are over" && condition["reason"] == stopping.ReasonStopped
	}
	if !said {
		t.Errorf("the conditions are %v", conditions)
	}
	if err := p.lifecycle.Stop(t.Context(), target(pod), until, ""); err != nil {
		t.Errorf("stopped while it goes: %v", err)
	}
	p.merge(pod, `{"metadata":{"finalizers":null}}`)
	p.eventually(pod, stopping.Gone)
}

// A pod that took the name is another pod.
func TestMadeAnewInACluster(t *testing.T) {
	const job = `{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`
	const pod = `{apiVersion: v1, kind: Pod, spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: torch}]}}`
	for _, text := range []string{job, pod} {
		p := newPlace(t)
		first := p.made(text)
		if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		p.eventually(first, stopping.Gone)
		second := p.made(text)
		if err := p.lifecycle.Stop(t.Context(), target(first), until, ""); !errors.Is(err, stopping.ErrGone) {
			t.Errorf("%v", err)
		}
		if !kinds.AsksToRun(p.now(second)) {
			t.Errorf("the new %s was stopped", second.GetKind())
		}
	}
}

// racing lets something happen between the reading and the writing.
type racing struct {
	client.Client
	between func()
}

func (r *racing) run() {
	if between := r.between; between != nil {
		r.between = nil
		between()
	}
}

func (r *racing) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	r.run()
	return r.Client.Patch(ctx, object, patch, opts...)
}

func (r *racing) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	r.run()
	return r.Client.Delete(ctx, object, opts...)
}

// Between the reading and the writing it was changed, or made anew.
func TestRacesInACluster(t *testing.T) {
	const cluster = `{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`
	const pod = `{apiVersion: v1, kind: Pod, spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: torch}]}}`
	t.Run("changed", func(t *testing.T) {
		p := newPlace(t)
		object := p.made(cluster)
		r := &racing{Client: p.lifecycle.Client, between: func() { p.merge(object, `{"spec":{"size":7}}`) }}
		if err := (&stopping.Stopper{Client: r}).Stop(t.Context(), target(object), until, ""); err != nil {
			t.Fatal(err)
		}
		size, _, _ := unstructured.NestedInt64(p.now(object).Object, "spec", "size")
		if size != 7 || kinds.AsksToRun(p.now(object)) {
			t.Errorf("%v", p.now(object).Object)
		}
	})
	t.Run("changed three times, then made anew", func(t *testing.T) {
		p := newPlace(t)
		first := p.made(cluster)
		var second *unstructured.Unstructured
		r := &racing{Client: p.lifecycle.Client}
		changes := 0
		var change func()
		change = func() {
			if changes++; changes < 4 {
				p.merge(first, fmt.Sprintf(`{"spec":{"size":%d}}`, changes))
				r.between = change
				return
			}
			if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
				t.Error(err)
			}
			p.eventually(first, stopping.Gone)
			second = p.made(cluster)
		}
		r.between = change
		if err := (&stopping.Stopper{Client: r}).Stop(t.Context(), target(first), until, ""); !errors.Is(err, stopping.ErrGone) {
			t.Errorf("%v", err)
		}
		if second == nil || !kinds.AsksToRun(p.now(second)) {
			t.Error("the new one was stopped")
		}
	})
	for _, text := range []string{cluster, pod} {
		t.Run("made anew", func(t *testing.T) {
			p := newPlace(t)
			first := p.made(text)
			var second *unstructured.Unstructured
			r := &racing{Client: p.lifecycle.Client, between: func() {
				if err := p.Delete(t.Context(), first.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				p.eventually(first, stopping.Gone)
				second = p.made(text)
			}}
			if err := (&stopping.Stopper{Client: r}).Stop(t.Context(), target(first), until, ""); !errors.Is(err, stopping.ErrGone) {
				t.Errorf("%v", err)
			}
			if !kinds.AsksToRun(p.now(second)) {
				t.Error("the new one was stopped")
			}
		})
	}
}

// A Workload of Kueue's is found by what it holds.
func TestAQueuedJobInACluster(t *testing.T) {
	p := newPlace(t)
	job := p.made(`{apiVersion: batch/v1, kind: Job, spec: {` + podTemplate(corev1.RestartPolicyNever) + `}}`)
	workload := p.made(`{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {name: job-x, labels: {kueue.x-k8s.io/job-uid: ` + string(job.GetUID()) + `}}, spec: {}}`)
	if err := p.lifecycle.Stop(t.Context(), target(job), until, ""); err != nil {
		t.Fatal(err)
	}
	if kinds.AsksToRun(p.now(job)) || kinds.AsksToRun(p.now(workload)) {
		t.Error("one of the two asks to run")
	}
	commands, err := p.lifecycle.Commands(t.Context(), target(job))
	if err != nil || len(commands) != 1 || !strings.Contains(commands[0], "workloads.kueue.x-k8s.io/job-x") {
		t.Errorf("started by %q (%v)", commands, err)
	}
}

// What lifecycle has no right to, or nobody knows how to stop, it leaves and says
// so.
func TestWhatCannotBeStoppedInACluster(t *testing.T) {
	p := newPlace(t)
	c := clustertest.Start(t)
	owned := func(kind string) string {
		return "{apiVersion: example.org/v1, kind: " + kind + ", spec: {suspend: false, workers: {count: 4}}}"
	}
	farm, ranch, meadow := p.made(owned("Farm")), p.made(owned("Ranch")), p.made(owned("Meadow"))
	for _, object := range []*unstructured.Unstructured{farm, ranch, meadow} {
		if err := p.lifecycle.Stop(t.Context(), target(object), until, ""); !errors.Is(err, stopping.ErrForbidden) || !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", object.GetKind(), err)
		}
	}
	node := stopping.Target{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Name: "dgx-01", UID: "u"}
	if err := p.lifecycle.Stop(t.Context(), node, until, ""); !errors.Is(err, stopping.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	lease := p.made(`{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {}}`)
	if err := stopperAs(t, c.Config(), "admin").Stop(t.Context(), target(lease), until, ""); err == nil {
		t.Error("a Lease was stopped")
	}

	grant(t, p, "farms", "ranches", "meadows")
	for _, object := range []*unstructured.Unstructured{farm, ranch} {
		clustertest.Eventually(t, func() error { return p.lifecycle.Stop(t.Context(), target(object), until, "") })
		p.eventually(object, stopping.Stopped)
	}
	if count, _, _ := unstructured.NestedInt64(p.now(farm).Object, "spec", "workers", "count"); count != 0 {
		t.Errorf("%d workers", count)
	}
	if err := p.lifecycle.Stop(t.Context(), target(meadow), until, ""); !errors.Is(err, stopping.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	deleting := &stopping.Stopper{Client: p.lifecycle.Client, DeleteUnknown: true}
	if err := deleting.Stop(t.Context(), target(meadow), until, ""); err != nil {
		t.Error(err)
	}
	// The garbage collector takes half a minute to hear of a new kind.
	var going unstructured.Unstructured
	going.SetGroupVersionKind(meadow.GroupVersionKind())
	err := p.Get(t.Context(), client.ObjectKeyFromObject(meadow), &going)
	if err == nil && (going.GetDeletionTimestamp() == nil || !slices.Contains(going.GetFinalizers(), metav1.FinalizerDeleteDependents)) {
		t.Errorf("it is not being deleted, its pods first: %v", going.Object)
	}
	if client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// grant gives lifecycle rights to kinds that it does not know, until the test ends.
func grant(t *testing.T, p place, resources ...string) {
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

// Annotations have a limit, and its author may have used it up.
func TestAFullObjectInACluster(t *testing.T) {
	p := newPlace(t)
	const limit, key = 256 << 10, "mine"
	object := p.made(`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {annotations: {` + key + `: ` + strings.Repeat("x", limit-len(key)) + `}}, spec: {}}`)
	if err := p.lifecycle.Stop(t.Context(), target(object), until, ""); err != nil {
		t.Fatal(err)
	}
	stopped := p.now(object)
	if _, marked := kinds.StoppedUntil(stopped); marked || kinds.AsksToRun(stopped) {
		t.Errorf("marked: %v, asks to run: %v", marked, kinds.AsksToRun(stopped))
	}
}

// Many who write the object at once do not keep it from being stopped.
func TestStoppedWhileOthersWrite(t *testing.T) {
	p := newPlace(t)
	object := p.made(`{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}`)
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
		err := p.lifecycle.Stop(t.Context(), target(object), until, "")
		if err != nil && !errors.Is(err, stopping.ErrConflict) {
			t.Errorf("%v", err)
		}
		return err
	})
	cancel()
	<-done
	if kinds.AsksToRun(p.now(object)) {
		t.Error("it asks to run")
	}
}

// A StatefulSet whose pods are not ready, or held by a finalizer, would keep its
// other pods for ever.
func TestAStatefulSetThatIsHeldUp(t *testing.T) {
	const ready, unready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`
	const finalizer = `{"metadata":{"finalizers":["test.sluice.dev/hold"]}}`
	tests := map[string]struct {
		hold func(p place, pods []*unstructured.Unstructured)
		// held is how many of its pods are left in the end.
		held int
	}{
		"never ready": {hold: func(p place, pods []*unstructured.Unstructured) {
			for _, pod := range pods {
				p.status(pod, unready)
			}
		}},
		"a finalizer": {held: 1, hold: func(p place, pods []*unstructured.Unstructured) { p.merge(pods[2], finalizer) }},
		"nothing":     {hold: func(place, []*unstructured.Unstructured) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			set := p.made(`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: x, replicas: 3, selector: {matchLabels: {app: x}}, ` + podTemplate(corev1.RestartPolicyAlways) + `}}`)
			var pods []*unstructured.Unstructured
			for i := range 3 {
				pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
				pod.SetNamespace(p.namespace)
				pod.SetName(fmt.Sprintf("x-%d", i))
				clustertest.Eventually(t, func() error { return p.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) })
				p.status(pod, ready)
				pods = append(pods, pod)
			}
			tc.hold(p, pods)
			t.Cleanup(func() {
				for _, pod := range pods {
					_ = p.Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
			})
			clustertest.Eventually(t, func() error {
				if err := p.lifecycle.Stop(t.Context(), target(set), until, ""); err != nil {
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
					return fmt.Errorf("%d pods are left, of which run: %v", left, running)
				}
				return nil
			})
		})
	}
}

func (p place) status(of *unstructured.Unstructured, patch string) {
	p.Helper()
	if err := p.Status().Patch(p.Context(), of.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		p.Fatal(err)
	}
}
