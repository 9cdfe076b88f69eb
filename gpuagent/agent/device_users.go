// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/gpuagent/host"
)

// maxNamedUsers limits the processes that a message names.
const maxNamedUsers = 6

// openBy describes the processes that have a GPU open.
func (r *reconciler) openBy(ctx context.Context, gpu string) string {
	users, err := host.DeviceUsers(r.cfg.Proc, gpu)
	if err != nil {
		return fmt.Sprintf("the processes that have it open are unknown: %v", err)
	}
	pods, err := r.liveHolders.BoundPods(ctx)
	if err != nil {
		pods = nil // their processes are named without them
	}
	return describeUsers(users, pods)
}

// describeUsers names processes that have a GPU open, with their pods.
func describeUsers(users []host.DeviceUser, pods []corev1.Pod) string {
	if len(users) == 0 {
		return "no process has it open now; a kernel module may hold it (nvidia_drm, where a display or console uses the GPU)"
	}
	var texts []string
	for _, user := range users[:min(len(users), maxNamedUsers)] {
		text := user.String()
		if at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return slices.Contains(user.Pods, pod.UID) }); at >= 0 {
			text = fmt.Sprintf("process %s (%d) of pod %s/%s", user.Program, user.PID, pods[at].Namespace, pods[at].Name)
		}
		texts = append(texts, text)
	}
	if more := len(users) - maxNamedUsers; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "it is open in " + strings.Join(texts, ", ")
}

// reloadMonitoring makes dcgm-exporter close its handles of GPUs and open them again. DCGM in a pod of its
// own (nv-hostengine) has no such signal; spec.mig.pause of the node pool ends it.
func (r *reconciler) reloadMonitoring() {
	processes, err := r.exporter.Reload()
	r.log.Info("Reloaded dcgm-exporter, since a GPU is in use", "processes", processes, "error", err)
}
