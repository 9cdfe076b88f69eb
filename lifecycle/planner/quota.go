// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/policies/kaigroup"
	"sluice.dev/policies/merge/value"
)

// waitsForQueue tells whether a pod waits for its queue and not for room. What Kueue
// holds back has a gate and is not here; what KAI-Scheduler does, its group says.
func (r *Reconciler) waitsForQueue(ctx context.Context, w *waiting) (bool, error) {
	if w.group == "" {
		return false, nil
	}
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(kaigroup.Kind)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: w.group}, group)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil // the annotation is not KAI-Scheduler's word
	case err != nil:
		return false, fmt.Errorf("reading PodGroup %s/%s: %w", w.namespace, w.group, err)
	}
	return groupOverQuota(group.Object), nil
}

// groupOverQuota tells whether a PodGroup says that its queue may have no more.
func groupOverQuota(group map[string]any) bool {
	return slices.ContainsFunc(value.List(value.Map(group["status"])["schedulingConditions"]), func(condition any) bool {
		c := value.Map(condition)
		return value.Text(c["status"]) == "True" && slices.ContainsFunc(value.List(c["reasons"]), func(reason any) bool {
			text := value.Text(value.Map(reason)["reason"])
			return text == kaiOverQuota || text == kaiOverLimit
		})
	})
}
