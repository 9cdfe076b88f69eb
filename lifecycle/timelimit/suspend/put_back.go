// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// maxPutBacks is how often a workload is put back that its own fault keeps from starting.
const maxPutBacks = 2

// PutBack gives back the quota of a workload that did not start, and keeps its place in the queue: it
// deactivates the root's Kueue Workloads, and records in the same write until when. Kueue orders its queues by
// the creation of the Workload. It returns when the workload is queued again, or the zero time if it cannot be
// put back: without a root or a Kueue Workload that lifecycle may write, or if it is its own fault that it did not
// start and it was put back maxPutBacks times. A workload that is put back already is not written: then first is false.
func (s *Stopper) PutBack(ctx context.Context, t Target, now time.Time, ownFault bool) (until time.Time, first bool, err error) {
	err = s.retryOnConflict(ctx, t, func(r root) error {
		return s.forEachQueued(ctx, r, func(workload root) error {
			record := workloadkind.ParsePutBack(workload.object.GetAnnotations()[v1alpha1.AnnotationPutBack])
			switch {
			case !workload.kind.RequestsPods(workload.object):
				until = policytime.Later(until, record.Until)
				return nil
			case !hasQuota(workload.object) || ownFault && record.Times >= maxPutBacks:
				return nil
			}
			record = record.Next(now)
			until, first = record.Until, true
			annotations := map[string]any{v1alpha1.AnnotationPutBack: record.String()}
			return s.applyPatch(ctx, workload.object, workload.mergePatch(workload.stopPatch(), annotations))
		})
	})
	if errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrForbidden) {
		return time.Time{}, false, nil
	}
	return until, first, t.wrapError("put back", err)
}

// hasQuota reports whether Kueue reserved quota for a Workload. Any user can create others with the label of the root.
func hasQuota(workload *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		c, _ := condition.(map[string]any)
		return c["type"] == "QuotaReserved" && c["status"] == "True"
	})
}
