// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// retire takes the devices from pods of this name that are over or gone, once
// their processes are gone too. Pod is the one that is there now, or nil.
func (k *kubelet) retire(key string, pod *corev1.Pod) error {
	// Round drops the monotonic reading: the checkpoint has only the wall clock.
	now := time.Now().Round(0)
	for _, holder := range k.state.Pods() {
		lives := pod != nil && string(pod.UID) == holder.UID && !workload.Ended(pod)
		if lives || keyOf(holder.Namespace, holder.Name) != key {
			continue
		}
		if holder.Lives() {
			if err := k.keep(k.state.End(holder.UID, now.Add(holder.ExitDelay))); err != nil {
				return err
			}
		}
		if err := k.release(key, holder.UID, now); err != nil {
			return err
		}
	}
	return nil
}

// release frees the devices of a pod that is over if its time has come, and
// else sees to it that this is tried again then.
func (k *kubelet) release(key, uid string, now time.Time) error {
	holder, held := k.state.Pod(uid)
	if !held {
		return nil
	}
	if left := holder.ReleaseAt.Sub(now); left > 0 {
		k.queue.AddAfter(key, left)
		return nil
	}
	waiting := k.state.Waiting(uid)
	if err := k.detach(holder.Processes); err != nil {
		return err
	}
	if err := k.keep(k.state.Release(uid)); err != nil {
		return err
	}
	k.log.Info("devices are free", "pod", key, "devices", holder.Devices())
	for _, uid := range waiting {
		next, _ := k.state.Pod(uid)
		k.queue.Add(keyOf(next.Namespace, next.Name))
	}
	return nil
}
