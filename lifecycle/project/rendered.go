// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render/queuekinds"
)

const (
	// settle is for how long objects that come are gathered, in machine time: lifecycle
	// made them itself.
	settle = time.Second
	// soon is for how long others are: the quotas of a project are counted one after
	// the other.
	soon = 50 * time.Millisecond
)

// rendered brings back the project for which an object was rendered: to put
// right what somebody changed, and to see what is counted.
type rendered struct{}

var _ handler.EventHandler = rendered{}

// Create implements handler.EventHandler.
func (rendered) Create(_ context.Context, e event.CreateEvent, q queuekinds.Queue) {
	enqueue(q, e.Object, settle)
}

// Delete implements handler.EventHandler.
func (rendered) Delete(_ context.Context, e event.DeleteEvent, q queuekinds.Queue) {
	enqueue(q, e.Object, soon)
}

// Generic implements handler.EventHandler.
func (rendered) Generic(_ context.Context, e event.GenericEvent, q queuekinds.Queue) {
	enqueue(q, e.Object, soon)
}

// Update implements handler.EventHandler.
func (rendered) Update(_ context.Context, e event.UpdateEvent, q queuekinds.Queue) {
	if usedAlone(e.ObjectOld, e.ObjectNew) {
		return // every pod changes that, and nothing here goes by it
	}
	enqueue(q, e.ObjectOld, soon)
	enqueue(q, e.ObjectNew, soon)
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

// enqueue brings the project of an object back, after those that are new.
func enqueue(q queuekinds.Queue, object client.Object, after time.Duration) {
	queuekinds.Later(q, object.GetLabels()[v1alpha1.LabelProject], after)
}
