// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// ReasonStopped is the reason of the condition DisruptionTarget on a pod that is
// deleted because its time is over.
const ReasonStopped = "StoppedBySluice"

// maxMessage is how long a condition's message may be.
const maxMessage = 1024

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
	if !r.kind.AsksToRun(r.object) {
		return nil
	}
	err := s.Client.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(disrupted(r, why)),
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

// disrupted says on the pod why it goes.
func disrupted(r root, why string) *unstructured.Unstructured {
	message := strings.ToValidUTF8(why[:min(len(why), maxMessage)], "")
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
		"lastTransitionTime": clock.MachineNow().UTC().Format(time.RFC3339),
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
