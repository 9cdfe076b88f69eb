// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"fmt"
	"slices"
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

// ReasonStopped is the reason of the condition DisruptionTarget on a pod that Sluice deletes, for
// example at its time limit. The message says why.
const ReasonStopped = "StoppedBySluice"

func (r root) isPod() bool { return r.Group == "" && r.Kind == "Pod" }

// deletePod stops a pod that is a root: it has no controller, or none that can be stopped.
func (s *Stopper) deletePod(ctx context.Context, r root, message string) error {
	if _, mirror := r.object.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
		return fmt.Errorf("%w: it is a static pod of its node", ErrUnsupported)
	}
	if !r.kind.RequestsPods(r.object) {
		return nil
	}
	return s.evict(ctx, r.Target, message)
}

// EvictPod evicts a pod, for example one of a workload that its stop action did not stop. The
// message says why; it is written on the pod. Another pod that has its name now stays. If the pod already
// terminates, gracePeriod shortens the rest of its grace period; nil leaves the pod's own.
func (s *Stopper) EvictPod(ctx context.Context, pod Target, gracePeriod *int64, message string) error {
	options := []client.DeleteOption{}
	if gracePeriod != nil {
		options = append(options, client.GracePeriodSeconds(*gracePeriod))
	}
	err := s.evict(ctx, pod, message, options...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return pod.wrapError("evict", err)
}

// evict writes the condition DisruptionTarget on a pod and deletes it. It does not use the
// Eviction API, because a disruption budget could block that forever.
func (s *Stopper) evict(ctx context.Context, pod Target, message string, options ...client.DeleteOption) error {
	err := s.Client.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(disruptionStatus(pod, message)),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err
	}
	if err != nil {
		// The condition is informative. The deletion does not depend on it.
		ctrl.LoggerFrom(ctx).Info("Failed to set condition on stopped pod", "namespace", pod.Namespace, "name", pod.Name, "reason", err.Error())
	}
	return s.Client.Delete(ctx, newPodObject(pod), append(options, client.Preconditions{UID: &pod.UID})...)
}

func newPodObject(pod Target) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(podKind)
	object.SetNamespace(pod.Namespace)
	object.SetName(pod.Name)
	return object
}

// disruptionStatus returns the status patch with the condition DisruptionTarget.
func disruptionStatus(pod Target, message string) *unstructured.Unstructured {
	message = v1alpha1.TruncateText(message, v1alpha1.MaxConditionMessageBytes)
	status := newPodObject(pod)
	status.SetUID(pod.UID)
	status.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type":               string(corev1.DisruptionTarget),
		"status":             string(corev1.ConditionTrue),
		"reason":             ReasonStopped,
		"message":            message,
		"lastTransitionTime": policytime.MachineNow().UTC().Format(time.RFC3339),
	}}}
	return status
}

// deleteRoot deletes a root of a kind without another stop action, pods first.
func (s *Stopper) deleteRoot(ctx context.Context, r root) error {
	if r.object.GetDeletionTimestamp() != nil {
		return nil
	}
	preconditions := client.Preconditions{UID: &r.UID}
	if !r.anyVersion {
		preconditions.ResourceVersion = ptr.To(r.object.GetResourceVersion())
	}
	return s.Client.Delete(ctx, r.object, client.PropagationPolicy(metav1.DeletePropagationForeground), preconditions)
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// deleteRemainingPods deletes the pods of a controller that terminates them in order. Such a
// controller waits forever for a pod that is not ready or has a finalizer, while the others
// run. Pods are deleted only after the controller has observed that it has no replicas, so
// that it does not replace them.
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
			return fmt.Errorf("delete pod %s: %w", pods[i].GetName(), err)
		}
	}
	return nil
}

// hasTerminatingPod reports whether a pod is within its termination grace period. Then the
// controller needs no help yet.
func hasTerminatingPod(pods []unstructured.Unstructured) bool {
	return slices.ContainsFunc(pods, func(pod unstructured.Unstructured) bool {
		deleted := pod.GetDeletionTimestamp()
		return deleted != nil && policytime.MachineNow().Before(deleted.Time)
	})
}

// listControlledPods returns the pods that match the root's selector and that it controls.
func (s *Stopper) listControlledPods(ctx context.Context, r root) ([]unstructured.Unstructured, error) {
	var labels metav1.LabelSelector
	spec, _, _ := unstructured.NestedMap(r.object.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &labels); err != nil {
		return nil, fmt.Errorf("parse spec.selector: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&labels)
	if err != nil {
		return nil, fmt.Errorf("parse spec.selector: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(podKind)
	if err := s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var pods []unstructured.Unstructured
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], r.object) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}
