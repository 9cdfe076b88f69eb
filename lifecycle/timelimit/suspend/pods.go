// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// ReasonStopped is the reason of the condition DisruptionTarget on a pod that is
// deleted because its time is over.
const ReasonStopped = "StoppedBySluice"

// maxConditionMessage is how long a condition's message may be.
const maxConditionMessage = 1024

func (r root) isPod() bool { return r.Group == "" && r.Kind == "Pod" }

// deletePod stops a pod that is its own root. It is a deletion and not an
// eviction, which a disruption budget could hold up for ever.
func (s *Stopper) deletePod(ctx context.Context, r root, why string) error {
	if owner := metav1.GetControllerOf(r.object); owner != nil {
		return fmt.Errorf("%w: it is a pod of %s %s, which would make another; that one is to be stopped", ErrUnsupported, owner.Kind, owner.Name)
	}
	if _, mirror := r.object.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
		return fmt.Errorf("%w: it is a static pod, and its node's", ErrUnsupported)
	}
	if !r.kind.RequestsPods(r.object) {
		return nil
	}
	err := s.Client.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(disruptionStatus(r, why)),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err
	}
	if err != nil {
		// The condition is for people; it holds nothing up.
		ctrl.LoggerFrom(ctx).Info("a pod is deleted without its condition", "namespace", r.Namespace, "name", r.Name, "reason", err.Error())
	}
	return s.Client.Delete(ctx, r.object, client.Preconditions{UID: &r.UID})
}

// disruptionStatus says on the pod why it goes.
func disruptionStatus(r root, why string) *unstructured.Unstructured {
	message := strings.ToValidUTF8(why[:min(len(why), maxConditionMessage)], "")
	status := &unstructured.Unstructured{}
	status.SetGroupVersionKind(r.object.GroupVersionKind())
	status.SetNamespace(r.Namespace)
	status.SetName(r.Name)
	status.SetUID(r.UID)
	status.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type":               string(corev1.DisruptionTarget),
		"status":             string(corev1.ConditionTrue),
		"reason":             ReasonStopped,
		"message":            message,
		"lastTransitionTime": policytime.MachineNow().UTC().Format(time.RFC3339),
	}}}
	return status
}

// deleteRoot deletes a root of a kind that nothing else stops, its pods first.
func (s *Stopper) deleteRoot(ctx context.Context, r root) error {
	if r.object.GetDeletionTimestamp() != nil {
		return nil
	}
	only := client.Preconditions{UID: &r.UID}
	if !r.anyVersion {
		only.ResourceVersion = ptr.To(r.object.GetResourceVersion())
	}
	return s.Client.Delete(ctx, r.object, client.PropagationPolicy(metav1.DeletePropagationForeground), only)
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// deleteRemainingPods takes down what is left where a controller that takes its pods down in
// order does not get on: it waits for ever for pods that are not ready, or that a
// finalizer holds, while the others run. It acts only where the controller knows
// that it has no replicas, and so makes none anew.
func (s *Stopper) deleteRemainingPods(ctx context.Context, r root) error {
	if !r.kind.OrderedTermination || r.kind.RequestsPods(r.object) || !r.kind.HasActivePods(r.object) {
		return nil
	}
	observed, _, _ := unstructured.NestedInt64(r.object.Object, "status", "observedGeneration")
	if observed != r.object.GetGeneration() {
		return nil
	}
	pods, err := s.listControlledPods(ctx, r)
	if err != nil || hasTerminatingPod(pods) {
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

// hasTerminatingPod tells whether one of the pods is being taken down and still has time to
// end: then it goes on without help.
func hasTerminatingPod(pods []unstructured.Unstructured) bool {
	return slices.ContainsFunc(pods, func(pod unstructured.Unstructured) bool {
		deleted := pod.GetDeletionTimestamp()
		return deleted != nil && policytime.MachineNow().Before(deleted.Time)
	})
}

// listControlledPods are the pods of the root, as its controller finds them.
func (s *Stopper) listControlledPods(ctx context.Context, r root) ([]unstructured.Unstructured, error) {
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
