// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
)

// reconcilePod releases the devices of ended pods of this name, and admits, starts, rejects
// or removes the existing one. It may be called at any time and repeatedly.
func (k *kubelet) reconcilePod(ctx context.Context, key string) error {
	pod := k.cachedPod(key)
	if previous, ok := k.decisions[key]; ok && (pod == nil || pod.UID != previous.uid || workload.IsPodTerminal(pod)) {
		delete(k.decisions, key)
	}
	if err := k.releaseEndedPods(key, pod); err != nil {
		return err
	}
	switch previous, decided := k.decisions[key]; {
	case pod == nil:
		return nil
	case isRemovable(pod):
		return k.deletePod(ctx, pod)
	case workload.IsPodTerminal(pod):
		return nil
	case pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending:
		return k.setTerminated(ctx, pod) // the pod never ran and never will
	case previous.admitted:
		return k.startPod(ctx, pod)
	case decided:
		return nil
	case canStart(pod) && len(podDemands(pod)) == 0:
		// Admitted before this process started, and not in the checkpoint.
		k.decisions[key] = decision{pod.UID, true}
		return nil
	}
	return k.admitPod(ctx, key, pod)
}

func (k *kubelet) cachedPod(key string) *corev1.Pod {
	if obj, found, err := k.pods.GetByKey(key); err == nil && found {
		return obj.(*corev1.Pod)
	}
	return nil
}

// admitPod admits or rejects a pod. It writes the pod's devices to the checkpoint before
// the pod can start.
func (k *kubelet) admitPod(ctx context.Context, key string, pod *corev1.Pod) error {
	next, rejected := evaluateAdmission(pod, k.admittedPods(), k.allocatable(), k.state)
	if rejected != nil {
		k.log.Info("Rejected pod", "pod", key, "reason", rejected.Reason, "message", rejected.Message)
		if err := k.setFailed(ctx, pod, *rejected); err != nil {
			return err
		}
		k.decisions[key] = decision{pod.UID, false}
		return nil
	}
	if err := k.saveState(next); err != nil {
		return err
	}
	k.decisions[key] = decision{pod.UID, true}
	holder, _ := next.Pod(string(pod.UID))
	k.log.Info("Admitted pod", "pod", key, "devices", holder.Devices())
	return k.startPod(ctx, pod)
}

// admittedPods returns the admitted pods that have not ended.
func (k *kubelet) admittedPods() []*corev1.Pod {
	return k.podsOnNode(func(pod *corev1.Pod) bool {
		last := k.decisions[objectKey(pod.Namespace, pod.Name)]
		return last.admitted && last.uid == pod.UID && !workload.IsPodTerminal(pod)
	})
}

// allocatable returns the Node's allocatable resources, or those of the machine if the Node
// does not exist.
func (k *kubelet) allocatable() corev1.ResourceList {
	if node := k.cachedNode(); node != nil {
		return node.Status.Allocatable
	}
	return k.node.Machine.Allocatable(k.state)
}

// startPod starts the processes of an admitted pod and sets the condition for kwok. If
// processes of other pods are still on its devices, it does nothing; their end queues the
// pod again.
func (k *kubelet) startPod(ctx context.Context, pod *corev1.Pod) error {
	if blockers := k.state.BlockingPods(string(pod.UID)); len(blockers) > 0 {
		k.log.Info("Pod waits for the processes of ended pods",
			"pod", objectKey(pod.Namespace, pod.Name), "uids", blockers)
		return nil
	}
	var startErr *startError
	switch err := k.startProcesses(pod); {
	case errors.As(err, &startErr):
		key := objectKey(pod.Namespace, pod.Name)
		k.log.Info("Failed to start pod", "pod", key, "error", startErr)
		if err := k.setFailed(ctx, pod, rejection{startFailed, startErr.Error()}); err != nil {
			return err
		}
		k.decisions[key] = decision{pod.UID, false}
		return nil
	case err != nil:
		return err
	case canStart(pod):
		return nil
	}
	return k.setReadyToStart(ctx, pod)
}

// setReadyToStart sets the condition after which kwok runs a pod: as in a kubelet, its
// sandbox is ready.
func (k *kubelet) setReadyToStart(ctx context.Context, pod *corev1.Pod) error {
	return k.patchStatus(ctx, pod, map[string]any{
		"conditions": []corev1.PodCondition{{
			Type:               corev1.PodReadyToStartContainers,
			Status:             corev1.ConditionTrue,
			ObservedGeneration: pod.Generation,
			LastTransitionTime: metav1.Now(),
		}},
	})
}

// setFailed records that the node will not run a pod.
func (k *kubelet) setFailed(ctx context.Context, pod *corev1.Pod, r rejection) error {
	return k.patchStatus(ctx, pod, map[string]any{
		"phase":   corev1.PodFailed,
		"reason":  r.Reason,
		"message": r.message(),
	})
}

// setTerminated records the end of a pod that was deleted before it ran. Owners of its
// finalizers may wait for this.
func (k *kubelet) setTerminated(ctx context.Context, pod *corev1.Pod) error {
	return k.patchStatus(ctx, pod, map[string]any{"phase": corev1.PodFailed})
}

// patchStatus changes the status of the pod with this UID, and not of a later pod of its
// name. It ignores a deleted pod, which the watch reports.
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
	if err != nil && !isDeleted(err) {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// deletePod ends the deletion of the pod with this UID.
func (k *kubelet) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !isDeleted(err) {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// isDeleted reports whether a pod that was named with its UID no longer exists.
func isDeleted(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// now is the time by which processes outlive their pods.
var now = time.Now

// releaseEndedPods releases the devices of ended or deleted pods of this name, once their
// processes have ended. pod is the existing one, or nil.
func (k *kubelet) releaseEndedPods(key string, pod *corev1.Pod) error {
	// Round drops the monotonic reading: the checkpoint has only the wall clock.
	now := now().Round(0)
	for _, holder := range k.state.Pods() {
		alive := pod != nil && string(pod.UID) == holder.UID && !workload.IsPodTerminal(pod)
		if alive || objectKey(holder.Namespace, holder.Name) != key {
			continue
		}
		if holder.Running() {
			if err := k.saveState(k.state.End(holder.UID, now.Add(holder.ExitDelay))); err != nil {
				return err
			}
		}
		if err := k.releasePod(key, holder.UID, now); err != nil {
			return err
		}
	}
	return nil
}

// releasePod releases the devices of an ended pod, or queues the pod for the time at which
// its processes end.
func (k *kubelet) releasePod(key, uid string, now time.Time) error {
	holder, held := k.state.Pod(uid)
	if !held {
		return nil
	}
	if left := holder.ReleaseAt.Sub(now); left > 0 {
		k.queue.AddAfter(key, left)
		return nil
	}
	blocked := k.state.BlockedPods(uid)
	if err := k.hideProcesses(holder.Processes); err != nil {
		return err
	}
	if err := k.saveState(k.state.Release(uid)); err != nil {
		return err
	}
	k.log.Info("Released devices", "pod", key, "devices", holder.Devices())
	for _, uid := range blocked {
		next, _ := k.state.Pod(uid)
		k.queue.Add(objectKey(next.Namespace, next.Name))
	}
	return nil
}
