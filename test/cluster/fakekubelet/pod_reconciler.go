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

// reconcilePod brings one name's pods to where they should be: those that are
// over lose their devices, and the one that is there is admitted, started,
// refused or removed. It may be called at any moment, any number of times.
func (k *kubelet) reconcilePod(ctx context.Context, key string) error {
	pod := k.cachedPod(key)
	if last, ok := k.decisions[key]; ok && (pod == nil || pod.UID != last.uid || workload.IsPodTerminal(pod)) {
		delete(k.decisions, key)
	}
	if err := k.releaseEndedPods(key, pod); err != nil {
		return err
	}
	switch last, decided := k.decisions[key]; {
	case pod == nil:
		return nil
	case isRemovable(pod):
		return k.deletePod(ctx, pod)
	case workload.IsPodTerminal(pod):
		return nil
	case pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending:
		return k.setTerminated(ctx, pod) // it never ran, and never will
	case last.admitted:
		return k.startPod(ctx, pod)
	case decided:
		return nil
	case canStart(pod) && len(podDemands(pod)) == 0:
		// Admitted before this process was started, and not in the checkpoint.
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

// admitPod decides about a pod. Its devices are in the checkpoint before it is let
// past the gate.
func (k *kubelet) admitPod(ctx context.Context, key string, pod *corev1.Pod) error {
	next, refused := evaluateAdmission(pod, k.admittedPods(), k.allocatable(), k.state)
	if refused != nil {
		k.log.Info("pod refused", "pod", key, "reason", refused.Reason, "message", refused.Message)
		if err := k.setFailed(ctx, pod, *refused); err != nil {
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
	k.log.Info("pod admitted", "pod", key, "devices", holder.Devices())
	return k.startPod(ctx, pod)
}

// admittedPods returns the pods that the node runs, or will run.
func (k *kubelet) admittedPods() []*corev1.Pod {
	return k.podsOnNode(func(pod *corev1.Pod) bool {
		last := k.decisions[objectKey(pod.Namespace, pod.Name)]
		return last.admitted && last.uid == pod.UID && !workload.IsPodTerminal(pod)
	})
}

// allocatable is what the Node says; where there is none, what it would say.
func (k *kubelet) allocatable() corev1.ResourceList {
	if node := k.cachedNode(); node != nil {
		return node.Status.Allocatable
	}
	return k.node.Machine.Allocatable(k.state)
}

// startPod starts the processes of an admitted pod and opens the gate for it, unless
// processes of others are still on its devices: then its turn comes when those are
// gone.
func (k *kubelet) startPod(ctx context.Context, pod *corev1.Pod) error {
	if blockers := k.state.BlockingPods(string(pod.UID)); len(blockers) > 0 {
		k.log.Info("pod waits until the processes of pods that are over are gone",
			"pod", objectKey(pod.Namespace, pod.Name), "uids", blockers)
		return nil
	}
	var cannot *startError
	switch err := k.startProcesses(pod); {
	case errors.As(err, &cannot):
		key := objectKey(pod.Namespace, pod.Name)
		k.log.Info("pod cannot start", "pod", key, "error", cannot)
		if err := k.setFailed(ctx, pod, rejection{startFailed, cannot.Error()}); err != nil {
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

// setReadyToStart lets kwok run a pod: its sandbox is up, as a kubelet would say.
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

// setFailed says that the node will not run a pod.
func (k *kubelet) setFailed(ctx context.Context, pod *corev1.Pod, r rejection) error {
	return k.patchStatus(ctx, pod, map[string]any{
		"phase":   corev1.PodFailed,
		"reason":  r.Reason,
		"message": r.message(),
	})
}

// setTerminated says that a pod which was deleted before it ran is over: whoever keeps
// it may wait for that.
func (k *kubelet) setTerminated(ctx context.Context, pod *corev1.Pod) error {
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
	if err != nil && !isDeleted(err) {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// deletePod ends the deletion of this very pod.
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

// isDeleted reports whether a pod that was named with its UID is no more.
func isDeleted(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// releaseEndedPods takes the devices from pods of this name that are over or gone, once
// their processes are gone too. Pod is the one that is there now, or nil.
func (k *kubelet) releaseEndedPods(key string, pod *corev1.Pod) error {
	// Round drops the monotonic reading: the checkpoint has only the wall clock.
	now := time.Now().Round(0)
	for _, holder := range k.state.Pods() {
		lives := pod != nil && string(pod.UID) == holder.UID && !workload.IsPodTerminal(pod)
		if lives || objectKey(holder.Namespace, holder.Name) != key {
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

// releasePod frees the devices of a pod that is over if its time has come, and
// else sees to it that this is tried again then.
func (k *kubelet) releasePod(key, uid string, now time.Time) error {
	holder, held := k.state.Pod(uid)
	if !held {
		return nil
	}
	if left := holder.ReleaseAt.Sub(now); left > 0 {
		k.queue.AddAfter(key, left)
		return nil
	}
	waiting := k.state.IsBlocked(uid)
	if err := k.hideProcesses(holder.Processes); err != nil {
		return err
	}
	if err := k.saveState(k.state.Release(uid)); err != nil {
		return err
	}
	k.log.Info("devices are free", "pod", key, "devices", holder.Devices())
	for _, uid := range waiting {
		next, _ := k.state.Pod(uid)
		k.queue.Add(objectKey(next.Namespace, next.Name))
	}
	return nil
}
