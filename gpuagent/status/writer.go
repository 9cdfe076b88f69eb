// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// minWriteInterval separates two writes.
const minWriteInterval = time.Second

// Writer writes the status of one GPUNode.
type Writer struct {
	// Node is the GPUNode's name.
	Node string
	// Live reads from the API server, and Status writes.
	Live   client.Reader
	Status client.SubResourceWriter
	// Now returns machine time. Default: time.Now.
	Now func() time.Time

	mu   sync.Mutex
	last time.Time
}

func (w *Writer) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// Write writes the report to the status if that changes the status. known is the cached GPUNode; the
// report holds for it and for no other GPUNode of its name. If the last write is too recent, Write
// writes nothing and returns when to call again. A GPUNode that is gone is no error.
func (w *Writer) Write(ctx context.Context, known *v1alpha1.GPUNode, report Report) (again time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if isUnchanged(&known.Status, report, now) {
		return 0, nil
	}
	if since := now.Sub(w.last); since >= 0 && since < minWriteInterval {
		return minWriteInterval - since, nil
	}
	// The cached GPUNode may be older than the last write.
	var current v1alpha1.GPUNode
	if err := w.Live.Get(ctx, types.NamespacedName{Name: w.Node}, &current); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("read GPUNode %s: %w", w.Node, err))
	}
	if current.UID != known.UID || isUnchanged(&current.Status, report, now) {
		return 0, nil
	}
	next := current.DeepCopy()
	next.Status = *mergeStatus(&current.Status, report, now)
	w.last = now
	if err := w.Status.Patch(ctx, next, client.MergeFrom(&current), client.FieldOwner(v1alpha1.FieldManagerGPUAgent)); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("write status of GPUNode %s: %w", w.Node, err))
	}
	return 0, nil
}

// isUnchanged reports whether the report leaves a status as it is.
func isUnchanged(former *v1alpha1.GPUNodeStatus, report Report, now time.Time) bool {
	return equality.Semantic.DeepEqual(former, mergeStatus(former, report, now))
}

// Report is what the agent observed.
type Report struct {
	// Generation is the generation of the spec in the pass.
	Generation int64
	// Complete reports whether this generation was applied or found impossible.
	Complete bool
	// DriverVersion is the driver's version. Empty keeps the former one.
	DriverVersion string
	// GPUs are the node's GPUs. Nil keeps the former ones.
	GPUs []v1alpha1.ObservedGPU
	// Pods are the pods with a GPU or a MIG device. Nil keeps the former ones.
	Pods []v1alpha1.PodUsage
	// Conditions replace those of their types; others stay.
	Conditions []metav1.Condition
}

// mergeStatus returns the status with the report.
func mergeStatus(former *v1alpha1.GPUNodeStatus, report Report, now time.Time) *v1alpha1.GPUNodeStatus {
	next := former.DeepCopy()
	if report.Complete {
		next.ObservedGeneration = report.Generation
	}
	if report.DriverVersion != "" {
		next.DriverVersion = truncateText(report.DriverVersion, maxVersion)
	}
	if report.GPUs != nil {
		next.GPUs = validGPUs(report.GPUs, former.GPUs)
		next.Slices = truncateText(formatSlices(next.GPUs), maxSlices)
	}
	if report.Pods != nil {
		next.Pods = mergePodUses(former.Pods, report.Pods)
	}
	for _, condition := range report.Conditions {
		condition.ObservedGeneration = report.Generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		condition.Message = truncateText(condition.Message, maxConditionMessage)
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	if report.GPUs != nil && report.Pods != nil && isSampleDue(former, next, now) {
		next.SampledAt = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	return next
}

// sampleInterval is the longest time between two samples in machine time: readers take an agent whose
// last sample is three minutes old for absent.
const sampleInterval = 50 * time.Second

// isSampleDue reports whether a whole sample is written: with each change, and after sampleInterval.
// A time in the future comes from a clock that was set back.
func isSampleDue(former, next *v1alpha1.GPUNodeStatus, now time.Time) bool {
	if former.SampledAt == nil || !equality.Semantic.DeepEqual(former, next) {
		return true
	}
	age := now.Sub(former.SampledAt.Time)
	return age >= sampleInterval || age < -sampleInterval
}
