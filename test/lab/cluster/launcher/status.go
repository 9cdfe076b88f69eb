// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/test/lab/cluster/process"
)

// podStatus returns the status that a kubelet would report.
func (w *worker) podStatus(pod *corev1.Pod) corev1.PodStatus {
	start := metav1.NewTime(w.startTime.Truncate(time.Second))
	status := corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		Phase:              w.phase(),
		StartTime:          &start,
		PodIP:              w.identity.ip.String(),
		PodIPs:             []corev1.PodIP{{IP: w.identity.ip.String()}},
	}
	initialized, ready, started := true, true, w.rewriter != nil && w.waiting == nil
	for _, c := range w.containers {
		s := w.containerStatus(c, initialized)
		if c.init {
			initialized = initialized && c.succeeded()
			status.InitContainerStatuses = append(status.InitContainerStatuses, s)
		} else {
			ready = ready && s.Ready
			status.ContainerStatuses = append(status.ContainerStatuses, s)
		}
	}
	ended := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	reason := "ContainersNotReady"
	if ended {
		reason = "PodCompleted"
	}
	status.Conditions = []corev1.PodCondition{
		w.condition(pod, corev1.PodReadyToStartContainers, started && !ended, ""),
		w.condition(pod, corev1.PodInitialized, initialized, "ContainersNotInitialized"),
		w.condition(pod, corev1.ContainersReady, ready, reason),
		w.condition(pod, corev1.PodReady, ready, reason),
	}
	return status
}

// phase returns the phase that follows from the containers.
func (w *worker) phase() corev1.PodPhase {
	running, failed := false, false
	for _, c := range w.containers {
		ended := c.status.State == process.Exited
		switch {
		case c.init && ended && c.status.LastExitCode != 0:
			return corev1.PodFailed
		case c.init && !ended, !c.started:
			return corev1.PodPending
		case !ended:
			running = true
		case c.status.LastExitCode != 0:
			failed = true
		}
	}
	switch {
	case running:
		return corev1.PodRunning
	case failed:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// containerStatus returns the status of a container.
func (w *worker) containerStatus(c *container, initialized bool) corev1.ContainerStatus {
	started := false
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Started: &started,
		RestartCount: c.earlier + int32(c.status.Restarts), //nolint:gosec // a count of restarts
	}
	if c.started {
		s.ContainerID = fmt.Sprintf("launcher://%s/%d", c.process, c.status.Restarts)
	}
	if c.status.LastExit != "" {
		s.LastTerminationState.Terminated = c.terminated()
	}
	switch {
	case !c.started && w.waiting != nil:
		s.State.Waiting = w.waiting
	case !c.started && !initialized:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonInit}
	case !c.started:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonCreating}
	case c.status.State == process.Exited || c.status.State == process.Stopped:
		s.State.Terminated, s.LastTerminationState.Terminated = c.terminated(), nil
		s.Ready = c.init && c.succeeded()
	case c.status.PID == 0:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonBackOff, Message: "the process ended: " + c.status.LastExit}
	default:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: wholeSeconds(c.status.StartedAt)}
		s.Ready = c.isReady()
		started = c.spec.StartupProbe == nil || c.status.State == process.Running
	}
	return s
}

// terminated describes the last end of a container.
func (c *container) terminated() *corev1.ContainerStateTerminated {
	state := &corev1.ContainerStateTerminated{
		ExitCode: int32(c.status.LastExitCode), Reason: "Completed", //nolint:gosec // an exit code
		Message:   c.status.LastExit,
		StartedAt: wholeSeconds(c.status.StartedAt), FinishedAt: wholeSeconds(c.status.LastExitAt),
	}
	if state.ExitCode != 0 {
		state.Reason = "Error"
	}
	return state
}

func wholeSeconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// condition returns a condition of the pod, with the time of its last transition.
func (w *worker) condition(pod *corev1.Pod, kind corev1.PodConditionType, is bool, reason string) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
		Reason: reason, LastTransitionTime: wholeSeconds(time.Now()),
	}
	if is {
		c.Status, c.Reason = corev1.ConditionTrue, ""
	}
	for _, former := range append(w.published.Conditions, pod.Status.Conditions...) {
		if former.Type == kind && former.Status == c.Status {
			c.LastTransitionTime = former.LastTransitionTime
			break
		}
	}
	return c
}

// publish writes a status that differs from the last one. A pod that was removed is no
// error; the watch reports it.
func (w *worker) publish(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(status, w.published) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": patchOf(status)}
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = w.launcher.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	if err != nil && !isRemoved(err) {
		return fmt.Errorf("write status: %w", err)
	}
	w.published = status
	return nil
}

// patchOf returns the status as a patch, which also removes fields.
func patchOf(status corev1.PodStatus) map[string]any {
	conditions := make([]map[string]any, 0, len(status.Conditions))
	for _, c := range status.Conditions {
		conditions = append(conditions, map[string]any{
			"type": c.Type, "status": c.Status, "observedGeneration": c.ObservedGeneration,
			"lastTransitionTime": c.LastTransitionTime, "reason": orNull(c.Reason), "message": orNull(c.Message),
		})
	}
	patch := map[string]any{
		"observedGeneration": status.ObservedGeneration, "phase": status.Phase, "startTime": status.StartTime,
		"podIP": status.PodIP,
		// The list would be merged with the addresses of an earlier run.
		"podIPs": []map[string]string{{"ip": status.PodIP}, {"$patch": "replace"}}, "conditions": conditions,
		"containerStatuses": status.ContainerStatuses,
	}
	if len(status.InitContainerStatuses) > 0 {
		patch["initContainerStatuses"] = status.InitContainerStatuses
	}
	return patch
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// isRemoved reports whether a pod that was named with its UID no longer exists.
func isRemoved(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// gracePeriod returns the time between SIGTERM and SIGKILL.
func gracePeriod(pod *corev1.Pod) time.Duration {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	// The group takes 0 for its default.
	return cmp.Or(time.Duration(grace)*time.Second, time.Millisecond)
}
