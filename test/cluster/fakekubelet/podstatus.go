// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// openGate lets kwok run a pod: its sandbox is up, as a kubelet would say.
func (k *kubelet) openGate(ctx context.Context, pod *corev1.Pod) error {
	return k.patchStatus(ctx, pod, map[string]any{
		"conditions": []corev1.PodCondition{{
			Type:               corev1.PodReadyToStartContainers,
			Status:             corev1.ConditionTrue,
			ObservedGeneration: pod.Generation,
			LastTransitionTime: metav1.Now(),
		}},
	})
}

// fail says that the node will not run a pod.
func (k *kubelet) fail(ctx context.Context, pod *corev1.Pod, r refusal) error {
	return k.patchStatus(ctx, pod, map[string]any{
		"phase":   corev1.PodFailed,
		"reason":  r.Reason,
		"message": r.said(),
	})
}

// conclude says that a pod which was deleted before it ran is over: whoever keeps
// it may wait for that.
func (k *kubelet) conclude(ctx context.Context, pod *corev1.Pod) error {
	return k.patchStatus(ctx, pod, map[string]any{"phase": corev1.PodFailed})
}

// patchStatus changes the status of this very pod: not of one that has its name
// later. That it is gone is no error; the watch will say so.
func (k *kubelet) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	status["observedGeneration"] = pod.Generation
	if pod.Status.StartTime == nil {
		status["startTime"] = metav1.Now()
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	if err != nil && !isGone(err) {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// remove ends the deletion of this very pod.
func (k *kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// isGone reports whether a pod that was named with its UID is no more.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
