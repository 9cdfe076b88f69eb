// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// advance takes down what is left where a controller that takes its pods down in
// order does not get on: it waits for ever for pods that are not ready, or that a
// finalizer holds, while the others run. It acts only where the controller knows
// that it has no replicas, and so makes none anew.
func (s *Stopper) advance(ctx context.Context, r root) error {
	if !r.kind.Ordered || r.kind.AsksToRun(r.object) || !r.kind.IsBusy(r.object) {
		return nil
	}
	observed, _, _ := unstructured.NestedInt64(r.object.Object, "status", "observedGeneration")
	if observed != r.object.GetGeneration() {
		return nil
	}
	pods, err := s.controlled(ctx, r)
	if err != nil || ending(pods) {
		return err
	}
	for i := range pods {
		if pods[i].GetDeletionTimestamp() != nil {
			continue
		}
		uid := pods[i].GetUID()
		err := s.Client.Delete(ctx, &pods[i], client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("its pod %s: %w", pods[i].GetName(), err)
		}
	}
	return nil
}

// ending tells whether one of the pods is being taken down and still has time to
// end: then it goes on without help.
func ending(pods []unstructured.Unstructured) bool {
	return slices.ContainsFunc(pods, func(pod unstructured.Unstructured) bool {
		deleted := pod.GetDeletionTimestamp()
		return deleted != nil && clock.MachineNow().Before(deleted.Time)
	})
}

// controlled are the pods of the root, as its controller finds them.
func (s *Stopper) controlled(ctx context.Context, r root) ([]unstructured.Unstructured, error) {
	var labels metav1.LabelSelector
	written, _, _ := unstructured.NestedMap(r.object.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(written, &labels); err != nil {
		return nil, fmt.Errorf("reading its selector: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&labels)
	if err != nil {
		return nil, fmt.Errorf("reading its selector: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(podKind)
	if err := s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing its pods: %w", err)
	}
	var pods []unstructured.Unstructured
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], r.object) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}
