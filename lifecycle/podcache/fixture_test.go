// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"sluice.dev/test/scale/stubapi"
)

// podBuilder builds pods.
type podBuilder struct{ *corev1.Pod }

// newPod returns a pending pod without requests in the namespace lab.
func newPod(name string) podBuilder {
	return podBuilder{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

func (p podBuilder) withRequest(name corev1.ResourceName, amount string) podBuilder {
	list := corev1.ResourceList{name: resource.MustParse(amount)}
	return p.withContainer(corev1.Container{Name: fmt.Sprint("requests-", len(p.Spec.Containers)), Resources: corev1.ResourceRequirements{Limits: list, Requests: list}})
}

func (p podBuilder) withContainer(c corev1.Container) podBuilder {
	p.Spec.Containers = append(p.Spec.Containers, c)
	return p
}

func (p podBuilder) withAnnotation(key, value string) podBuilder {
	p.Annotations[key] = value
	return p
}

func (p podBuilder) withLabel(key, value string) podBuilder {
	p.Labels[key] = value
	return p
}

func (p podBuilder) withPhase(phase corev1.PodPhase) podBuilder {
	p.Status.Phase = phase
	return p
}

func (p podBuilder) onNode(node string) podBuilder {
	p.Spec.NodeName = node
	return p
}

func (p podBuilder) controlledBy(kind, name string) podBuilder {
	p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{
		APIVersion: "batch/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true),
	})
	return p
}

func (p podBuilder) withChange(change func(*corev1.Pod)) podBuilder {
	change(p.Pod)
	return p
}

// newGPUPod returns a pod that requests one GPU.
func newGPUPod(name string) podBuilder { return newPod(name).withRequest("nvidia.com/gpu", "1") }

// testServer is an API server with an interceptor, and the store that it fills.
type testServer struct {
	*testing.T
	server *stubapi.Server
	store  *Store
	// intercept may respond to a request; it returns true if it did.
	mutex         sync.Mutex
	intercept     func(http.ResponseWriter, *http.Request) bool
	requests      []string
	cancelWatches context.CancelFunc // ends the watches that are open
	watchContext  context.Context
}

// newTestServer returns a server with pods. The store is not started yet.
func newTestServer(t *testing.T, settings Settings, pods ...podBuilder) *testServer {
	t.Helper()
	server, err := stubapi.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &testServer{T: t, server: server}
	w.watchContext, w.cancelWatches = context.WithCancel(context.Background())
	front := httptest.NewServer(w)
	t.Cleanup(func() { w.cancelWatches(); front.Close() })
	settings.Logger = testr.NewWithOptions(t, testr.Options{Verbosity: -1})
	if w.store, err = New(&rest.Config{Host: front.URL, QPS: -1}, settings); err != nil {
		t.Fatal(err)
	}
	w.store.backoff = &wait.Backoff{Duration: time.Millisecond, Cap: 10 * time.Millisecond, Steps: 5, Factor: 2}
	w.putPods(pods...)
	return w
}

// startStore starts the store, and stops it before the server.
func (w *testServer) startStore() *testServer {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.store.Start(ctx)
	}()
	w.Cleanup(func() { cancel(); <-done })
	return w
}

// waitTimeout is for a machine on which much else runs. It only delays a failure.
const waitTimeout = 5 * time.Minute

func (w *testServer) waitForSync() *testServer {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), waitTimeout)
	defer cancel()
	if err := w.store.WaitForSync(ctx); err != nil {
		w.Fatal(err)
	}
	return w
}

// ServeHTTP records the request and calls the interceptor before the server.
func (w *testServer) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mutex.Lock()
	query := r.URL.Query()
	what := "list"
	if query.Get("limit") == "" {
		what = "list in one"
	}
	if query.Get("watch") == "true" {
		what = "watch from " + query.Get("resourceVersion")
		if query.Get("sendInitialEvents") == "true" {
			what = "watch-list"
		}
	}
	w.requests = append(w.requests, what)
	before, open := w.intercept, w.watchContext
	w.mutex.Unlock()
	if before != nil && before(out, r) {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(open, cancel)()
	w.server.ServeHTTP(out, r.WithContext(ctx))
}

// interceptRequests sets the interceptor; nil removes it.
func (w *testServer) interceptRequests(answer func(http.ResponseWriter, *http.Request) bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.intercept = answer
}

// dropConnections ends all open requests.
func (w *testServer) dropConnections() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.cancelWatches()
	w.watchContext, w.cancelWatches = context.WithCancel(context.Background())
}

func (w *testServer) countRequests(what string) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := 0
	for _, request := range w.requests {
		if request == what {
			n++
		}
	}
	return n
}

func (w *testServer) putPods(pods ...podBuilder) {
	w.Helper()
	for _, p := range pods {
		if err := w.server.PutPod(p.Pod); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *testServer) deletePod(name string) {
	w.Helper()
	if err := w.server.DeletePod("lab", name); err != nil {
		w.Fatal(err)
	}
}

// waitForPods waits until the store has exactly these pods.
func (w *testServer) waitForPods(want ...string) {
	w.Helper()
	w.waitUntil(func() bool { return slices.Equal(w.podNames(), want) }, func() any { return w.podNames() })
}

// waitUntil waits for a condition.
func (w *testServer) waitUntil(holds func() bool, have func() any) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 2*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		w.Fatalf("did not become so; have %v", have())
	}
}

func (w *testServer) podNames() []string { return sortedNames(w.store.All()) }

func sortedNames(pods func(func(*Pod) bool)) []string {
	list := []string{}
	for p := range pods {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return list
}

// Key returns the pod's namespace and name.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Len returns the number of pods.
func (s *Store) Len() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.byName)
}

// Get returns a pod by name, and false if there is no such GPU pod.
func (s *Store) Get(name types.NamespacedName) (*Pod, bool) {
	s.mutex.RLock()
	r, ok := s.byName[podKey{unique.Make(name.Namespace), name.Name}]
	s.mutex.RUnlock()
	return podOf(r, ok)
}
