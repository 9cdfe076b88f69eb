// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"sluice.dev/test/stubapi"
)

// builder builds pods.
type builder struct{ *corev1.Pod }

// pod is a pending pod in the namespace lab that asks for nothing.
func pod(name string) builder {
	return builder{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

func (p builder) asking(name corev1.ResourceName, amount string) builder {
	list := corev1.ResourceList{name: resource.MustParse(amount)}
	return p.container(corev1.Container{Name: fmt.Sprint("asks-", len(p.Spec.Containers)), Resources: corev1.ResourceRequirements{Limits: list, Requests: list}})
}

func (p builder) container(c corev1.Container) builder {
	p.Spec.Containers = append(p.Spec.Containers, c)
	return p
}

func (p builder) annotated(key, value string) builder {
	p.Annotations[key] = value
	return p
}

func (p builder) labelled(key, value string) builder {
	p.Labels[key] = value
	return p
}

func (p builder) phase(phase corev1.PodPhase) builder {
	p.Status.Phase = phase
	return p
}

func (p builder) on(node string) builder {
	p.Spec.NodeName = node
	return p
}

func (p builder) of(kind, name string) builder {
	p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{
		APIVersion: "batch/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true),
	})
	return p
}

func (p builder) with(change func(*corev1.Pod)) builder {
	change(p.Pod)
	return p
}

// gpu is a pod that asks for one GPU.
func gpu(name string) builder { return pod(name).asking("nvidia.com/gpu", "1") }

// world is a server, what stands before it, and the store that it fills.
type world struct {
	*testing.T
	server *stubapi.Server
	store  *Store
	// before may answer a request itself, and then returns true.
	mutex  sync.Mutex
	before func(http.ResponseWriter, *http.Request) bool
	asked  []string
	cut    context.CancelFunc // ends the watches that are open
	open   context.Context
}

// begin makes a server with pods; the store is not started yet.
func begin(t *testing.T, settings Settings, pods ...builder) *world {
	t.Helper()
	server, err := stubapi.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, server: server}
	w.open, w.cut = context.WithCancel(context.Background())
	front := httptest.NewServer(w)
	t.Cleanup(func() { w.cut(); front.Close() })
	settings.Logger = testr.NewWithOptions(t, testr.Options{Verbosity: -1})
	if w.store, err = New(&rest.Config{Host: front.URL, QPS: -1}, settings); err != nil {
		t.Fatal(err)
	}
	w.store.backoff = &wait.Backoff{Duration: time.Millisecond, Cap: 10 * time.Millisecond, Steps: 5, Factor: 2}
	w.put(pods...)
	return w
}

// start starts the store, which ends before the server does.
func (w *world) start() *world {
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

func (w *world) synced() *world {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	if err := w.store.WaitForSync(ctx); err != nil {
		w.Fatal(err)
	}
	return w
}

// ServeHTTP notes what is asked, and asks what stands before the server first.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
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
	w.asked = append(w.asked, what)
	before, open := w.before, w.open
	w.mutex.Unlock()
	if before != nil && before(out, r) {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(open, cancel)()
	w.server.ServeHTTP(out, r.WithContext(ctx))
}

// answering makes answer stand before the server; nil takes it away.
func (w *world) answering(answer func(http.ResponseWriter, *http.Request) bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.before = answer
}

// drop ends all requests that are open.
func (w *world) drop() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.cut()
	w.open, w.cut = context.WithCancel(context.Background())
}

func (w *world) times(what string) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := 0
	for _, asked := range w.asked {
		if asked == what {
			n++
		}
	}
	return n
}

func (w *world) put(pods ...builder) {
	w.Helper()
	for _, p := range pods {
		if err := w.server.PutPod(p.Pod); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.server.DeletePod("lab", name); err != nil {
		w.Fatal(err)
	}
}

// becomes waits until the store has exactly these pods.
func (w *world) becomes(want ...string) {
	w.Helper()
	w.until(func() bool { return slices.Equal(w.names(), want) }, func() any { return w.names() })
}

// until waits for a condition.
func (w *world) until(holds func() bool, have func() any) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 2*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		w.Fatalf("did not become so; have %v", have())
	}
}

func (w *world) names() []string { return names(w.store.All()) }

func names(pods func(func(*Pod) bool)) []string {
	list := []string{}
	for p := range pods {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return list
}
