// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/utilization"
)

// minWriteInterval separates two writes.
const minWriteInterval = time.Second

// Client reads and writes one GPUNode at the API server, without a cache.
type Client interface {
	GetGPUNode(ctx context.Context) (*v1alpha1.GPUNode, error)
	// PatchGPUNodeStatus sends a JSON merge patch to the status subresource.
	PatchGPUNodeStatus(ctx context.Context, patch []byte) error
}

// Writer writes the status of one GPUNode.
type Writer struct {
	// Node is the GPUNode's name.
	Node string
	// Client reads and writes it.
	Client Client
	// UseInterval is the shortest time between two reports of the use alone. Default: 30 s.
	UseInterval time.Duration
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
	if w.isUnchanged(&known.Status, report, now) {
		return 0, nil
	}
	if since := now.Sub(w.last); since >= 0 && since < minWriteInterval {
		return minWriteInterval - since, nil
	}
	// The cached GPUNode may be older than the last write.
	current, err := w.Client.GetGPUNode(ctx)
	if err != nil {
		return 0, ignoreNotFound(fmt.Errorf("read GPUNode %s: %w", w.Node, err))
	}
	if current.UID != known.UID || w.isUnchanged(&current.Status, report, now) {
		return 0, nil
	}
	next := current.DeepCopy()
	next.Status = *w.mergeStatus(&current.Status, report, now)
	patch, err := mergePatch(current, next)
	if err != nil {
		return 0, fmt.Errorf("write status of GPUNode %s: %w", w.Node, err)
	}
	w.last = now
	if err := w.Client.PatchGPUNodeStatus(ctx, patch); err != nil {
		return 0, ignoreNotFound(fmt.Errorf("write status of GPUNode %s: %w", w.Node, err))
	}
	return 0, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// mergePatch returns the JSON merge patch between two objects.
func mergePatch(before, after any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(from, to)
}

// isUnchanged reports whether the report leaves a status as it is.
func (w *Writer) isUnchanged(former *v1alpha1.GPUNodeStatus, report Report, now time.Time) bool {
	next := w.mergeStatus(former, report, now)
	return next == former || equality.Semantic.DeepEqual(former, next)
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
	// Use is the last sample of the use; nil if the use is unknown.
	Use *utilization.Result
	// Conditions replace those of their types; others stay.
	Conditions []metav1.Condition
}

// mergeStatus returns the status with the report: the former one itself if it compared both and they are equal.
func (w *Writer) mergeStatus(former *v1alpha1.GPUNodeStatus, report Report, now time.Time) *v1alpha1.GPUNodeStatus {
	next := former.DeepCopy()
	if report.Complete {
		next.ObservedGeneration = report.Generation
	}
	if report.DriverVersion != "" {
		next.DriverVersion = truncateText(report.DriverVersion, maxVersion)
	}
	if report.GPUs != nil {
		next.GPUs = validGPUs(report.GPUs, former.GPUs)
		keepOtherProcesses(next.GPUs, former.GPUs)
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
	if report.GPUs == nil || report.Pods == nil || report.Use == nil {
		return next
	}
	if former.SampledAt != nil && equality.Semantic.DeepEqual(former, next) &&
		!isUseDue(former, next.Pods, report.Use, cmp.Or(w.UseInterval, defaultUseInterval)) {
		return former
	}
	setUse(next, report.Use)
	return next
}
