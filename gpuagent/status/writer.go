// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report writes what the agent found into the status of its node's GPUNode.
//
// Enters: the GPUs as they are, who was given them, and what became of what the spec asks. Leaves: the
// status, in a write of its own at most once a second, and none where nothing changed.
//
// It never writes the spec, nor what the schema would refuse, by which nothing at all
// would be reported.
package status

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// minWriteInterval is the least time between two writes.
const minWriteInterval = time.Second

// Writer writes the status of one GPUNode. Its methods are called from one goroutine.
type Writer struct {
	// Node is the GPUNode's name.
	Node string
	// Live reads from the API server itself, and Status writes.
	Live   client.Reader
	Status client.SubResourceWriter
	// Now is machine time. Default: time.Now.
	Now func() time.Time

	last time.Time
}

func (w *Writer) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// Write writes what the facts change of the status, and nothing where they change
// nothing. known is the GPUNode as it was last seen; the facts hold for it and for no
// other of its name. Where the last write was just now nothing is written, and it says
// after how long to call again. A GPUNode that is gone is no error.
func (w *Writer) Write(ctx context.Context, known *v1alpha1.GPUNode, facts Report) (again time.Duration, err error) {
	now := w.now()
	if isUnchanged(&known.Status, facts, now) {
		return 0, nil
	}
	if since := now.Sub(w.last); since >= 0 && since < minWriteInterval {
		return minWriteInterval - since, nil
	}
	// Read again: what was last seen may be older than our own last write.
	var present v1alpha1.GPUNode
	if err := w.Live.Get(ctx, types.NamespacedName{Name: w.Node}, &present); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("reading GPUNode %s: %w", w.Node, err))
	}
	if present.UID != known.UID || isUnchanged(&present.Status, facts, now) {
		return 0, nil
	}
	next := present.DeepCopy()
	next.Status = *mergeStatus(&present.Status, facts, now)
	w.last = now
	if err := w.Status.Patch(ctx, next, client.MergeFrom(&present), client.FieldOwner(v1alpha1.FieldManagerGPUAgent)); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("writing the status of GPUNode %s: %w", w.Node, err))
	}
	return 0, nil
}

// isUnchanged tells whether the facts change nothing of a status.
func isUnchanged(former *v1alpha1.GPUNodeStatus, facts Report, now time.Time) bool {
	return equality.Semantic.DeepEqual(former, mergeStatus(former, facts, now))
}

// Report are what the agent found.
type Report struct {
	// Generation is the one of the spec that it went by.
	Generation int64
	// Complete tells that this generation was carried out, or found impossible.
	Complete bool
	// DriverVersion is the driver's. Empty: what was last reported stays.
	DriverVersion string
	// GPUs are the node's. Nil: they cannot be told, and what was last reported stays.
	GPUs []v1alpha1.ObservedGPU
	// Pods are those that were given a GPU or a MIG device, and which. Nil: as for GPUs.
	Pods []v1alpha1.PodUsage
	// Conditions are those that changed or stayed; one that is left out stays as it is.
	Conditions []metav1.Condition
}

// mergeStatus is what the facts make of a former status.
func mergeStatus(former *v1alpha1.GPUNodeStatus, facts Report, now time.Time) *v1alpha1.GPUNodeStatus {
	next := former.DeepCopy()
	if facts.Complete {
		next.ObservedGeneration = facts.Generation
	}
	if facts.DriverVersion != "" {
		next.DriverVersion = truncateText(facts.DriverVersion, maxVersion)
	}
	if facts.GPUs != nil {
		next.GPUs = validGPUs(facts.GPUs, former.GPUs)
		next.Slices = truncateText(formatSlices(next.GPUs), maxSlices)
	}
	if facts.Pods != nil {
		next.Pods = mergePodUses(former.Pods, facts.Pods)
	}
	for _, condition := range facts.Conditions {
		condition.ObservedGeneration = facts.Generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		condition.Message = truncateText(condition.Message, maxConditionMessage)
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	return next
}
