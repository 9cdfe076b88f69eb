// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// reconcilePod brings one name's pods to where they should be: those that are
// over lose their devices, and the one that is there is admitted, started,
// refused or removed. It may be called at any moment, any number of times.
func (k *kubelet) reconcilePod(ctx context.Context, key string) error {
	pod := k.pod(key)
	if last, ok := k.decided[key]; ok && (pod == nil || pod.UID != last.uid || workload.Ended(pod)) {
		delete(k.decided, key)
	}
	if err := k.retire(key, pod); err != nil {
		return err
	}
	switch last, decided := k.decided[key]; {
	case pod == nil:
		return nil
	case isRemovable(pod):
		return k.remove(ctx, pod)
	case workload.Ended(pod):
		return nil
	case pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending:
		return k.conclude(ctx, pod) // it never ran, and never will
	case last.admitted:
		return k.letStart(ctx, pod)
	case decided:
		return nil
	case mayStart(pod) && len(demandsOf(pod)) == 0:
		// Admitted before this process was started, and not in the checkpoint.
		k.decided[key] = decision{pod.UID, true}
		return nil
	}
	return k.admit(ctx, key, pod)
}

func (k *kubelet) pod(key string) *corev1.Pod {
	if obj, found, err := k.pods.GetByKey(key); err == nil && found {
		return obj.(*corev1.Pod)
	}
	return nil
}

// admit decides about a pod. Its devices are in the checkpoint before it is let
// past the gate.
func (k *kubelet) admit(ctx context.Context, key string, pod *corev1.Pod) error {
	next, refused := decide(pod, k.admitted(), k.allocatable(), k.state)
	if refused != nil {
		k.log.Info("pod refused", "pod", key, "reason", refused.Reason, "message", refused.Message)
		if err := k.fail(ctx, pod, *refused); err != nil {
			return err
		}
		k.decided[key] = decision{pod.UID, false}
		return nil
	}
	if err := k.keep(next); err != nil {
		return err
	}
	k.decided[key] = decision{pod.UID, true}
	holder, _ := next.Pod(string(pod.UID))
	k.log.Info("pod admitted", "pod", key, "devices", holder.Devices())
	return k.letStart(ctx, pod)
}

// admitted returns the pods that the node runs, or will run.
func (k *kubelet) admitted() []*corev1.Pod {
	return k.podsOnNode(func(pod *corev1.Pod) bool {
		last := k.decided[keyOf(pod.Namespace, pod.Name)]
		return last.admitted && last.uid == pod.UID && !workload.Ended(pod)
	})
}

// allocatable is what the Node says; where there is none, what it would say.
func (k *kubelet) allocatable() corev1.ResourceList {
	if node := k.apiNode(); node != nil {
		return node.Status.Allocatable
	}
	return k.node.Machine.Allocatable(k.state)
}

// letStart starts the processes of an admitted pod and opens the gate for it, unless
// processes of others are still on its devices: then its turn comes when those are
// gone.
func (k *kubelet) letStart(ctx context.Context, pod *corev1.Pod) error {
	if blockers := k.state.Blockers(string(pod.UID)); len(blockers) > 0 {
		k.log.Info("pod waits until the processes of pods that are over are gone",
			"pod", keyOf(pod.Namespace, pod.Name), "uids", blockers)
		return nil
	}
	var cannot *startError
	switch err := k.startProcesses(pod); {
	case errors.As(err, &cannot):
		key := keyOf(pod.Namespace, pod.Name)
		k.log.Info("pod cannot start", "pod", key, "error", cannot)
		if err := k.fail(ctx, pod, refusal{startFailed, cannot.Error()}); err != nil {
			return err
		}
		k.decided[key] = decision{pod.UID, false}
		return nil
	case err != nil:
		return err
	case mayStart(pod):
		return nil
	}
	return k.openGate(ctx, pod)
}
