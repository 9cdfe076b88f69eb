// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// IsPaused reports whether the user of a workload paused it. Kueue suspends the workloads of its
// queues by itself; their users pause them by deactivating their Kueue Workload. It returns false
// if that cannot be read.
func (s *Stopper) IsPaused(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	if !workloadkind.IsPaused(object) {
		return false, nil
	}
	kind, known := workloadkind.Lookup(object.GroupVersionKind().GroupKind())
	if !known || !kind.KueueManaged || object.GetLabels()[v1alpha1.LabelKueueQueue] == "" {
		return true, nil
	}
	queued, paused := false, false
	target := Target{GroupVersionKind: object.GroupVersionKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	err := classifyError(s.forEachQueued(ctx, root{Target: target, kind: kind, object: object}, func(workload root) error {
		queued, paused = true, paused || workloadkind.IsPaused(workload.object)
		return nil
	}))
	if errors.Is(err, ErrForbidden) {
		return false, nil
	}
	return paused || !queued, target.wrapError("inspect", err)
}
