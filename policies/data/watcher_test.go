// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

var claimResource = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}

func newTestWatcher(t *testing.T, objects ...runtime.Object) (*Watcher, *fake.FakeDynamicClient, chan struct{}) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}, meta.RESTScopeRoot)
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		claimResource: "PersistentVolumeClaimList", {Version: "v1", Resource: "persistentvolumes"}: "PersistentVolumeList",
	}, objects...)
	notified := make(chan struct{}, 100)
	w := &Watcher{Client: client, Mapper: mapper, Logger: logr.Discard(), Notify: func() { notified <- struct{}{} }}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Start(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w, client, notified
}

// waitTimeout is for a machine on which much else runs. It only delays a failure.
const waitTimeout = 5 * time.Minute

// await waits until the kind fulfills a condition after a notification.
func await(t *testing.T, w *Watcher, notified chan struct{}, what string, done func(engine.ObjectKind) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for {
		if kinds := w.Kinds(); len(kinds) == 1 && done(kinds[0]) {
			return
		}
		select {
		case <-notified:
		case <-ctx.Done():
			t.Fatalf("%s: never; the kinds are %+v", what, w.Kinds())
		}
	}
}

func TestWatcherFollowsObjects(t *testing.T) {
	w, client, notified := newTestWatcher(t, claim("a", "x", "fast"))
	w.SetKinds(t.Context(), []v1alpha1.PolicyDataKind{claims})
	// The kind counts as loaded a moment after its objects are readable, with the notification.
	await(t, w, notified, "the list, loaded", func(k engine.ObjectKind) bool { return k.Unavailable == "" && len(k.Groups) == 1 && w.Loaded() })
	resource := client.Resource(claimResource).Namespace("b")
	// The watch of the fake begins after its list, so that the first object may be too early for it.
	for deadline := time.Now().Add(waitTimeout); len(client.Actions()) < 2; wait(t.Context(), time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no watch began: %v", client.Actions())
		}
	}
	if _, err := resource.Create(t.Context(), claim("b", "y", "slow"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, w, notified, "a new object", func(k engine.ObjectKind) bool { return len(k.Groups) == 2 })
	if err := resource.Delete(t.Context(), "y", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, w, notified, "a deleted object", func(k engine.ObjectKind) bool { return len(k.Groups) == 1 })
	w.SetKinds(t.Context(), nil)
	if kinds := w.Kinds(); len(kinds) != 0 {
		t.Errorf("kinds %v after their removal", kinds)
	}
}

func TestWatcherNamesWhyAKindCannotBeRead(t *testing.T) {
	tests := map[string]struct {
		kind v1alpha1.PolicyDataKind
		list error
		want string
	}{
		"no right": {
			claims, apierrors.NewForbidden(claimResource.GroupResource(), "", errors.New("no RBAC rule")),
			`list: persistentvolumeclaims is forbidden: no RBAC rule`,
		},
		"no such kind": {v1alpha1.PolicyDataKind{APIVersion: "example.org/v1", Kind: "Missing"}, nil, `no matches for kind "Missing" in version "example.org/v1"`},
		"no namespaces": {
			v1alpha1.PolicyDataKind{APIVersion: "v1", Kind: "PersistentVolume"},
			nil,
			"the scope is wrong: the kind has no namespaces; set scope to Cluster",
		},
		"namespaces": {
			v1alpha1.PolicyDataKind{APIVersion: "v1", Kind: "PersistentVolumeClaim", Scope: v1alpha1.PolicyDataCluster},
			nil,
			"the scope is wrong: the kind has namespaces; set scope to Namespace or AllNamespaces",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, client, notified := newTestWatcher(t)
			if tc.list != nil {
				client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.list })
			}
			w.SetKinds(t.Context(), []v1alpha1.PolicyDataKind{tc.kind})
			// A kind that cannot be read must not keep the webhook from being ready. It counts as loaded a moment after
			// its reason is readable, with the notification.
			await(t, w, notified, "the reason, loaded", func(k engine.ObjectKind) bool {
				return strings.Contains(k.Unavailable, tc.want) && w.Loaded()
			})
		})
	}
}

func TestWatcherNeverReadsSecrets(t *testing.T) {
	w, client, _ := newTestWatcher(t)
	w.SetKinds(t.Context(), []v1alpha1.PolicyDataKind{{APIVersion: "v1", Kind: "Secret"}})
	if _, err := w.resource(&v1alpha1.PolicyDataKind{APIVersion: "v1", Kind: "Secret"}); err == nil {
		t.Error("no error for Secrets")
	}
	if len(w.Kinds()) != 0 || len(client.Actions()) != 0 {
		t.Errorf("kinds %v, requests %v; want none", w.Kinds(), client.Actions())
	}
}
