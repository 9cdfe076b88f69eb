// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/policies/engine"
)

// reports tells listeners when the test says so.
type reports struct{ listeners []func([]engine.Report) }

func (r *reports) OnReports(listener func([]engine.Report)) {
	r.listeners = append(r.listeners, listener)
}

func (r *reports) tell() {
	for _, listener := range r.listeners {
		listener(nil)
	}
}

// A controller has nothing to say of policies that are not loaded yet: it waits.
func TestAControllerWaitsForPolicies(t *testing.T) {
	var given reports
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	source := OtherPolicies(&given, func(context.Context) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "thesis"}}}
	})
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := source.WaitForSync(over); err == nil {
		t.Error("it works without policies")
	}
	given.tell()
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Error(err)
	}
	if queue.Len() != 0 {
		t.Errorf("%d subjects are looked at twice at the start", queue.Len())
	}
	given.tell()
	if queue.Len() != 1 {
		t.Errorf("%d subjects are looked at after a change, want 1", queue.Len())
	}
}
