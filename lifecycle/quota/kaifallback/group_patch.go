// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaifallback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/kaigroup"
)

// The values of spec.schedulingBackoff that KAI-Scheduler supports: how often it tries a group in a
// node pool.
const (
	tryOnce      int64 = 1
	retryForever int64 = -1
)

// moveGroup changes the queue of the pods and then of their group, which the scheduler tries again
// without a limit. After a failure in between, the next attempt repeats the same move.
func (r *Reconciler) moveGroup(ctx context.Context, group *unstructured.Unstructured, pods []corev1.Pod, to kaigroup.Placement) error {
	labels := labelPatch(to.Labels())
	labels[v1alpha1.LabelNodePool] = to.Pool
	var errs []error
	for i := range pods {
		if err := r.patchObject(ctx, &pods[i], map[string]any{"metadata": map[string]any{"labels": labels}}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("move pod %s to node pool %s: %w", client.ObjectKeyFromObject(&pods[i]), to.Pool, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.patchObject(ctx, group, map[string]any{
		"metadata": map[string]any{"labels": labelPatch(to.Labels())},
		"spec":     map[string]any{"queue": to.Queue, "schedulingBackoff": retryForever},
	})
}

// labelPatch returns a patch of labels, in which null removes one.
func labelPatch(labels map[string]string) map[string]any {
	patch := make(map[string]any, len(labels))
	for key, value := range labels {
		if patch[key] = nil; value != "" {
			patch[key] = value
		}
	}
	return patch
}

// setSchedulingBackoff sets how often the scheduler tries the group.
func (r *Reconciler) setSchedulingBackoff(ctx context.Context, group *unstructured.Unstructured, times int64) error {
	return r.patchObject(ctx, group, map[string]any{"spec": map[string]any{"schedulingBackoff": times}})
}

func (r *Reconciler) demoteGroup(ctx context.Context, group *unstructured.Unstructured, class kaigroup.Class) error {
	changed := kaigroup.Group(group.Object).WithClass(class)
	spec, _ := changed["spec"].(map[string]any)
	return r.patchObject(ctx, group, map[string]any{"spec": map[string]any{
		"priorityClassName": spec["priorityClassName"], "preemptibility": spec["preemptibility"],
	}})
}

// patchObject patches fields of an object if it did not change since it was read.
func (r *Reconciler) patchObject(ctx context.Context, object client.Object, fields map[string]any) error {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	merged := map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()}
	for key, value := range metadata {
		merged[key] = value
	}
	fields["metadata"] = merged
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}
