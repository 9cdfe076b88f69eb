// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/lifecycle/podcache"
)

// testEnv is a project whose ReplicaSet web-1 waits, and what was written there.
type testEnv struct {
	*Reconciler
	client   client.Client
	writes   []string
	recorder *events.FakeRecorder
	pods     fakePods
}

func newTestEnv(t *testing.T, used int64) *testEnv {
	t.Helper()
	types, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(policytime.MachineNow())
	p := newThesisProject()
	p.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "thesis"}
	quota := newQuota(1000, used, 0, 0)
	quota.Namespace, quota.Labels = "thesis", map[string]string{v1alpha1.LabelProject: "thesis", v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
	rejection := newRejectionEvent("ReplicaSet", "web-1", overQuotaMessage, 0, 0)
	rejection.ObjectMeta = metav1.ObjectMeta{Namespace: "thesis", Name: "announced"}
	rejection.InvolvedObject.Namespace, rejection.FirstTimestamp, rejection.LastTimestamp = "thesis", now, now
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "web-1", UID: rejection.InvolvedObject.UID}}
	g := &testEnv{recorder: events.NewFakeRecorder(10)}
	g.client = fake.NewClientBuilder().WithScheme(types).
		WithTypeConverters(applyconfiguration.NewTypeConverter(types), clientgoac.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter()).
		WithObjects(p, quota, &rejection, set).WithStatusSubresource(p).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				g.writes = append(g.writes, "patch "+o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
				return c.Patch(ctx, o, patch, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				g.writes = append(g.writes, "delete "+o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
				return c.Delete(ctx, o, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				g.writes = append(g.writes, "update "+sub+" "+*o.(interface{ GetName() *string }).GetName()) //nolint:forcetypeassert // generated
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		}).Build()
	g.Reconciler = &Reconciler{Client: g.client, Live: g.client, Pods: &g.pods, Clocks: clocksByController{}, Events: g.recorder, Clock: policytime.System()}
	g.initState()
	return g
}

// reconcileOnce is one pass, and what it wrote.
func (g *testEnv) reconcileOnce(t *testing.T) ([]string, reconcile.Result) {
	t.Helper()
	g.writes = nil
	result, err := g.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "thesis"}})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(g.writes)
	return g.writes, result
}

func TestRejectedAnnouncedOnceAndStatusStable(t *testing.T) {
	g := newTestEnv(t, 1000)
	wrote, result := g.reconcileOnce(t)
	if diff := cmp.Diff([]string{"update status thesis"}, wrote); diff != "" || result.RequeueAfter != pendingRequeueAfter {
		t.Errorf("%s\nagain after %v", diff, result.RequeueAfter)
	}
	if recorded := <-g.recorder.Events; !strings.Contains(recorded, "QuotaExceeded 1 pod waits for GPU quota, 0.5 of a GPU of node pool dgx: project thesis uses 1 GPU") {
		t.Errorf("recorded %q", recorded)
	}
	if wrote, _ := g.reconcileOnce(t); len(wrote) > 0 {
		t.Errorf("nothing changed, and it wrote %v", wrote)
	}
	if len(g.recorder.Events) > 0 {
		t.Errorf("recorded again: %q", <-g.recorder.Events)
	}
}

func TestFittingWorkloadRetriedOnce(t *testing.T) {
	g := newTestEnv(t, 500)
	wrote, result := g.reconcileOnce(t)
	if diff := cmp.Diff([]string{"patch ReplicaSet web-1", "update status thesis"}, wrote); diff != "" || result.RequeueAfter != retryGracePeriod {
		t.Errorf("%s\nagain after %v", diff, result.RequeueAfter)
	}
	set := &appsv1.ReplicaSet{}
	if err := g.client.Get(t.Context(), types.NamespacedName{Namespace: "thesis", Name: "web-1"}, set); err != nil || set.Annotations[v1alpha1.AnnotationRetriedAt] == "" {
		t.Errorf("annotations = %v, %v", set.Annotations, err)
	}
	if wrote, _ := g.reconcileOnce(t); len(wrote) > 0 {
		t.Errorf("a retry is in progress, and it was retried again: %v", wrote)
	}
}

// Protects invariant 11: a pod that was created after a rejection does not count a second time as
// missing while the status of its controller does not count it yet.
func TestCreatedPodIsNotMissing(t *testing.T) {
	for name, change := range map[string]func(*podcache.Pod){"waiting for a node": withoutNode, "bound": func(*podcache.Pod) {}} {
		t.Run(name, func(t *testing.T) {
			g := newTestEnv(t, 1000)
			set := &appsv1.ReplicaSet{}
			if err := g.client.Get(t.Context(), types.NamespacedName{Namespace: "thesis", Name: "web-1"}, set); err != nil {
				t.Fatal(err)
			}
			g.pods = fakePods{newGPUPod("dgx", 500, change, func(p *podcache.Pod) { p.Controller.UID = set.UID })}
			g.reconcileOnce(t)
			project := &v1alpha1.Project{}
			if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, project); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"waiting for a node": "500m", "bound": "0"}[name]
			if got := project.Status.GPU.Pending.String(); got != want {
				t.Errorf("pending = %s, want %s", got, want)
			}
		})
	}
}

// A project that is gone, or has no namespace yet, has nothing that waits.
func TestProjectWithoutNamespace(t *testing.T) {
	g := newTestEnv(t, 1000)
	g.reconcileOnce(t)
	if err := g.client.Delete(t.Context(), newThesisProject()); err != nil {
		t.Fatal(err)
	}
	if wrote, result := g.reconcileOnce(t); len(wrote) > 0 || result.RequeueAfter != 0 || len(g.pendingSince) != 0 {
		t.Errorf("wrote %v, again after %v, remembers %v", wrote, result.RequeueAfter, g.pendingSince)
	}
}

// An idle project shows zeros, not empty fields; they are written once.
func TestIdleProjectShowsZeros(t *testing.T) {
	g := newTestEnv(t, 0)
	project := newThesisProject()
	project.Spec.NodePools, project.Status = nil, v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "idle"}}
	project.Name, project.UID, project.ResourceVersion = "idle", "idle", ""
	if err := g.client.Create(t.Context(), project); err != nil {
		t.Fatal(err)
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "idle"}}
	if _, err := g.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := g.client.Get(t.Context(), request.NamespacedName, project); err != nil {
		t.Fatal(err)
	}
	if use := project.Status.GPU; use.Allocated.Format == "" || use.OverQuota.Format == "" || use.Pending.Format == "" {
		t.Errorf("GPU use = %+v, want zeros", use)
	}
	g.writes = nil
	if _, err := g.Reconcile(t.Context(), request); err != nil || len(g.writes) > 0 {
		t.Errorf("the second pass wrote %v, %v", g.writes, err)
	}
}
