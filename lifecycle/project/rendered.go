// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
)

// settle is for how long changes of the use alone are gathered, in machine time:
// a quota changes with every pod, and the project's status need not.
const settle = time.Second

// queue is what is to be done.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// rendered brings back the project for which an object was rendered: to put
// right what somebody changed, and to see what is counted.
type rendered struct{}

var _ handler.EventHandler = rendered{}

// Create implements handler.EventHandler.
func (rendered) Create(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object, 0) }

// Delete implements handler.EventHandler.
func (rendered) Delete(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object, 0) }

// Generic implements handler.EventHandler.
func (rendered) Generic(_ context.Context, e event.GenericEvent, q queue) { enqueue(q, e.Object, 0) }

// Update implements handler.EventHandler.
func (rendered) Update(_ context.Context, e event.UpdateEvent, q queue) {
	if usedAlone(e.ObjectOld, e.ObjectNew) {
		enqueue(q, e.ObjectNew, settle)
		return
	}
	enqueue(q, e.ObjectOld, 0)
	enqueue(q, e.ObjectNew, 0)
}

// usedAlone tells whether nothing of a quota changed but what is used of it.
func usedAlone(before, after client.Object) bool {
	old, ok := before.(*corev1.ResourceQuota)
	now, ok2 := after.(*corev1.ResourceQuota)
	return ok && ok2 &&
		equality.Semantic.DeepEqual(old.Labels, now.Labels) &&
		equality.Semantic.DeepEqual(old.Annotations, now.Annotations) &&
		equality.Semantic.DeepEqual(old.Spec, now.Spec) &&
		equality.Semantic.DeepEqual(old.Status.Hard, now.Status.Hard)
}

func enqueue(q queue, object client.Object, after time.Duration) {
	if name := object.GetLabels()[v1alpha1.LabelProject]; name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, after)
	}
}
