// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/scale/stubapi"
)

// startServer starts a server and returns it with its client configuration.
func startServer(t *testing.T, reactions ...stubapi.Reaction) (*stubapi.Server, *rest.Config) {
	t.Helper()
	server, err := stubapi.New(nil, reactions...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return server, config
}

// newClient returns a client like that of lifecycle: typed, with protobuf where possible.
func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newProject(name string) *v1alpha1.Project {
	return &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "science"}}
}

func TestDiscoveryRESTMapper(t *testing.T) {
	_, config := startServer(t)
	mapper := newClient(t, config).RESTMapper()
	for kind, want := range map[schema.GroupKind]meta.RESTScopeName{
		{Kind: "Pod"}: meta.RESTScopeNameNamespace, {Kind: "Node"}: meta.RESTScopeNameRoot,
		{Group: "batch", Kind: "Job"}:                meta.RESTScopeNameNamespace,
		{Group: "sluice.dev", Kind: "Project"}:       meta.RESTScopeNameRoot,
		{Group: "sluice.dev", Kind: "WorkloadClock"}: meta.RESTScopeNameNamespace,
	} {
		mapping, err := mapper.RESTMapping(kind)
		mustSucceed(t, err)
		if got := mapping.Scope.Name(); got != want {
			t.Errorf("%s is of scope %s, want %s", kind, got, want)
		}
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "nobody.io", Kind: "Thing"}); !meta.IsNoMatchError(err) {
		t.Errorf("RESTMapping of a kind that is not served: %v, want no match", err)
	}
	discovery, err := kubernetes.NewForConfig(config)
	mustSucceed(t, err)
	if version, err := discovery.Discovery().ServerVersion(); err != nil || version.Major != "1" {
		t.Errorf("version %v, %v", version, err)
	}
}

func TestObjectLifecycle(t *testing.T) {
	server, config := startServer(t)
	c, ctx := newClient(t, config), t.Context()
	p := newProject("thesis")
	mustSucceed(t, c.Create(ctx, p))
	if p.UID == "" || p.Generation != 1 || p.CreationTimestamp.IsZero() || p.ResourceVersion == "" {
		t.Errorf("created object: %+v", p.ObjectMeta)
	}
	if err := c.Create(ctx, newProject("thesis")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second Create: %v", err)
	}

	old := p.DeepCopy()
	p.Spec.Department, p.Status.Phase = "arts", v1alpha1.ProjectActive
	mustSucceed(t, c.Update(ctx, p))
	if p.Generation != 2 || p.Status.Phase != "" {
		t.Errorf("an update of the spec made generation %d and the phase %q; want 2 and none", p.Generation, p.Status.Phase)
	}
	if err := c.Update(ctx, old); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v, want a conflict", err)
	}
	was := p.DeepCopy()
	p.Status.Phase = v1alpha1.ProjectActive
	mustSucceed(t, c.Status().Patch(ctx, p, client.MergeFrom(was)))
	var got v1alpha1.Project
	mustSucceed(t, c.Get(ctx, client.ObjectKeyFromObject(p), &got))
	if got.Status.Phase != v1alpha1.ProjectActive || got.Generation != 2 || got.Spec.Department != "arts" {
		t.Errorf("after a patch of the status: phase %q, generation %d, department %s", got.Status.Phase, got.Generation,
			got.Spec.Department)
	}
	version := got.ResourceVersion
	mustSucceed(t, c.Update(ctx, &got))
	if got.ResourceVersion != version {
		t.Error("an update that changes nothing created a version")
	}

	got.Finalizers = []string{"sluice.dev/project"}
	mustSucceed(t, c.Update(ctx, &got))
	if err := c.Delete(ctx, &got, client.Preconditions{UID: new(types.UID("other"))}); !apierrors.IsConflict(err) {
		t.Errorf("Delete with another UID: %v", err)
	}
	mustSucceed(t, c.Delete(ctx, &got, client.Preconditions{UID: &got.UID}))
	mustSucceed(t, c.Get(ctx, client.ObjectKeyFromObject(p), &got))
	if got.DeletionTimestamp == nil {
		t.Error("the object does not wait for its finalizer")
	}
	got.Finalizers = nil
	mustSucceed(t, c.Update(ctx, &got))
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), &got); !apierrors.IsNotFound(err) {
		t.Errorf("after the removal of the finalizer: %v", err)
	}

	want := map[stubapi.Write]int{
		{Verb: "create", Resource: "projects.sluice.dev"}: 2, {Verb: "update", Resource: "projects.sluice.dev"}: 5,
		{Verb: "patch", Resource: "projects.sluice.dev/status"}: 1, {Verb: "delete", Resource: "projects.sluice.dev"}: 2,
	}
	if diff := cmp.Diff(want, server.Writes()); diff != "" {
		t.Errorf("writes (-want +got)\n%s", diff)
	}
}

// Typed clients of built-in kinds write protobuf.
func TestBuiltInKinds(t *testing.T) {
	_, config := startServer(t)
	c, ctx := newClient(t, config), t.Context()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", GenerateName: "train-"},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(4))},
	}
	mustSucceed(t, c.Create(ctx, job))
	if job.Name == "" || *job.Spec.Parallelism != 4 {
		t.Errorf("created job: %+v", job)
	}
	mustSucceed(t, c.Patch(ctx, job, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"a":"b"}},"spec":{"suspend":true,"parallelism":null}}`))))
	if !*job.Spec.Suspend || job.Spec.Parallelism != nil || job.Annotations["a"] != "b" {
		t.Errorf("patched job: %+v", job)
	}
	only := &metav1.PartialObjectMetadata{}
	only.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	mustSucceed(t, c.Get(ctx, client.ObjectKeyFromObject(job), only))
	if only.UID != job.UID || only.Annotations["a"] != "b" {
		t.Errorf("metadata: %+v", only)
	}
	for range 2 { // the first creates it, the second changes nothing
		applied := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"namespace": "lab", "name": "q"},
			"spec": map[string]any{"hard": map[string]any{"pods": "4"}},
		}}
		mustSucceed(t, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("test"), client.ForceOwnership))
	}
	var quotas corev1.ResourceQuotaList
	mustSucceed(t, c.List(ctx, &quotas, client.InNamespace("lab")))
	if len(quotas.Items) != 1 || quotas.Items[0].Generation != 1 {
		t.Errorf("quotas after applying twice: %+v", quotas.Items)
	}
	pod := stubapi.Fleet{Projects: 1, Roots: 1, PodsPerRoot: 1}.Pod(0, 0)
	pod.ResourceVersion = ""
	mustSucceed(t, c.Create(ctx, pod))
	pod.Status.Phase = corev1.PodSucceeded
	mustSucceed(t, c.Status().Update(ctx, pod))
	var pods corev1.PodList
	mustSucceed(t, c.List(ctx, &pods, client.MatchingFields{"status.phase": "Succeeded"},
		client.MatchingLabels{"sluice.dev/department": stubapi.Department}))
	if len(pods.Items) != 1 || pods.Items[0].Name != pod.Name {
		t.Errorf("selected %d pods", len(pods.Items))
	}
	mustSucceed(t, c.Delete(ctx, pod))
}

func TestPagedList(t *testing.T) {
	server, config := startServer(t)
	fleet := stubapi.Fleet{Projects: 2, Roots: 5, PodsPerRoot: 2, Nodes: 1, Others: 1}
	mustSucceed(t, fleet.Fill(server))
	for contentType, accept := range map[string]string{"protobuf": "application/vnd.kubernetes.protobuf", "JSON": "application/json"} {
		typed := rest.CopyConfig(config)
		typed.ContentType, typed.AcceptContentTypes = accept, accept
		clientset, err := kubernetes.NewForConfig(typed)
		mustSucceed(t, err)
		pods := clientset.CoreV1().Pods("")
		options, found := metav1.ListOptions{Limit: 3}, map[types.UID]bool{}
		for pages := 1; ; pages++ {
			list, err := pods.List(t.Context(), options)
			mustSucceed(t, err)
			for i := range list.Items {
				if pod := &list.Items[i]; pod.Spec.Containers[0].Image != "" {
					found[pod.UID] = true
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				if pages != 4 || len(found) != 11 {
					t.Errorf("%s: %d pods in %d pages, want 11 in 4", contentType, len(found), pages)
				}
				break
			}
		}
		if _, err := pods.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: "of-another-time"}); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: continued a list that does not exist: %v", contentType, err)
		}
	}
}

// nextEvent returns the next event of a watch, without bookmarks.
func nextEvent(t *testing.T, w watch.Interface) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		select {
		case event, ok := <-w.ResultChan():
			object, err := meta.Accessor(event.Object)
			switch {
			case !ok:
				t.Fatal("the watch ended")
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object).Error()
			case err != nil:
				t.Fatal(err)
			case event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "":
				continue
			}
			return string(event.Type) + " " + object.GetName()
		case <-ctx.Done():
			t.Fatal("no event arrived")
		}
	}
}

func TestWatchWithSelector(t *testing.T) {
	for _, accept := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		server, config := startServer(t)
		fleet := stubapi.Fleet{Projects: 1, Roots: 2, PodsPerRoot: 1, Nodes: 1}
		mustSucceed(t, fleet.Fill(server))
		config.ContentType, config.AcceptContentTypes = accept, accept
		clientset, err := kubernetes.NewForConfig(config)
		mustSucceed(t, err)
		w, err := clientset.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{
			FieldSelector: "status.phase!=Succeeded", SendInitialEvents: new(true), AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		mustSucceed(t, err)
		defer w.Stop()
		got := []string{nextEvent(t, w), nextEvent(t, w), nextEvent(t, w)}
		ended := fleet.Pod(0, 0)
		ended.Status.Phase = corev1.PodSucceeded
		mustSucceed(t, server.PutPod(ended))
		mustSucceed(t, server.DeletePod(ended.Namespace, ended.Name)) // no longer selected
		moved := fleet.Pod(1, 0)
		moved.Spec.NodeName = "other"
		mustSucceed(t, server.PutPod(moved))
		mustSucceed(t, server.DeletePod(moved.Namespace, moved.Name))
		got = append(got, nextEvent(t, w), nextEvent(t, w), nextEvent(t, w))
		a, b := ended.Name, moved.Name
		if diff := cmp.Diff([]string{"ADDED " + a, "ADDED " + b, "BOOKMARK ", "DELETED " + a, "MODIFIED " + b, "DELETED " + b},
			got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", accept, diff)
		}
	}
}

func TestWatchResumesFromResourceVersion(t *testing.T) {
	_, config := startServer(t)
	c, ctx := newClient(t, config), t.Context()
	first := newProject("first")
	mustSucceed(t, c.Create(ctx, first))
	mustSucceed(t, c.Create(ctx, newProject("second")))
	var list v1alpha1.ProjectList
	w, err := c.Watch(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion}})
	mustSucceed(t, err)
	defer w.Stop()
	if got := nextEvent(t, w); got != "ADDED second" {
		t.Errorf("got %s, want the event after the first", got)
	}
	mustSucceed(t, c.Delete(ctx, first))
	if got := nextEvent(t, w); got != "DELETED first" {
		t.Errorf("got %s", got)
	}
	if _, err := c.Watch(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion:   "0",
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}); err != nil {
		t.Errorf("watch with initial events: %v", err)
	}
}

func TestWithoutWatchList(t *testing.T) {
	server, config := startServer(t)
	server.WithoutWatchList = true
	clientset, err := kubernetes.NewForConfig(config)
	mustSucceed(t, err)
	_, err = clientset.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want Invalid", err)
	}
}

func TestStopSuspendedReaction(t *testing.T) {
	fleet := stubapi.Fleet{Projects: 3, Roots: 6, PodsPerRoot: 4, Nodes: 2, MaxRuntime: "48h", StartInterval: time.Minute}
	server, config := startServer(t, fleet.StopSuspended)
	mustSucceed(t, fleet.Fill(server))
	c, ctx := newClient(t, config), t.Context()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace(4), Name: fleet.RootName(4)}}
	mustSucceed(t, c.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))))
	var pods corev1.PodList
	mustSucceed(t, c.List(ctx, &pods))
	left := map[string]int{}
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		left[owner.Name]++
		if index, err := strconv.Atoi(owner.Name[len("training-run-"):]); err != nil || owner.UID != fleet.RootUID(index) {
			t.Errorf("pod %s belongs to %s %s", pods.Items[i].Name, owner.Name, owner.UID)
		}
	}
	if left[fleet.RootName(4)] != 0 || len(pods.Items) != 20 {
		t.Errorf("%d pods remain, of the stopped job %d; want 20 and 0", len(pods.Items), left[fleet.RootName(4)])
	}
	var department v1alpha1.Department
	mustSucceed(t, c.Get(ctx, client.ObjectKey{Name: stubapi.Department}, &department))
	var projects v1alpha1.ProjectList
	mustSucceed(t, c.List(ctx, &projects))
	var namespaces corev1.NamespaceList
	mustSucceed(t, c.List(ctx, &namespaces))
	if len(projects.Items) != 3 || len(namespaces.Items) != 3 || len(department.Spec.Workloads) != 1 {
		t.Errorf("%d projects, %d namespaces, limits %v", len(projects.Items), len(namespaces.Items), department.Spec.Workloads)
	}
	if len(server.Writes()) != 1 {
		t.Errorf("the writes of the fleet itself were counted: %v", server.Writes())
	}
}
