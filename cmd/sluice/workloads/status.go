// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/quota/pending"
)

// The states of a workload. While pods start, the state is that of the pod, such as ContainerCreating or
// ImagePullBackOff.
const (
	StatusTerminating = "Terminating"
	StatusStopped     = "Stopped"
	StatusScheduled   = "Scheduled" // a CronJob
	StatusQueued      = "Queued"
	StatusPending     = "Pending"
	StatusRunning     = "Running"
	StatusSucceeded   = "Succeeded"
	StatusFailed      = "Failed"
)

// Status returns the state of a workload, and why it waits, failed or was stopped; empty while it runs.
func (w *Workload) Status() (status, reason string) {
	kind := w.Object.GroupVersionKind().GroupKind()
	switch {
	case w.Object.GetDeletionTimestamp() != nil:
		return StatusTerminating, ""
	case w.Kind.IsFinished(w.Object):
		return w.result()
	case w.isStopped():
		return StatusStopped, w.stopReason()
	case kind == cronJobKind:
		schedule, _, _ := unstructured.NestedString(w.Object.Object, "spec", "schedule")
		return StatusScheduled, schedule
	}
	if status, reason, found := w.podStatus(); found {
		return status, reason
	}
	if reason, queued := w.queueReason(); queued {
		return StatusQueued, reason
	}
	if len(w.FailedCreates) > 0 {
		return StatusPending, describeFailedCreate(w.FailedCreates[0])
	}
	return StatusPending, ""
}

// describeFailedCreate returns why a controller could not create a pod: the reason alone, without the names of the
// pod and of the webhook. `sluice why` says what to do.
func describeFailedCreate(message string) string {
	if rejection, ok := pending.ParseQuotaRejection(message); ok {
		quota := "the GPU quota"
		if pool := rejection.NodePool(); pool != "" {
			quota += " in node pool " + pool
		}
		return quota + " has no room for " + rejection.Charge.Describe()
	}
	for _, before := range []string{"denied the request: ", "denied request: ", "is forbidden: ", "Error creating: "} {
		if _, reason, found := strings.Cut(message, before); found && reason != "" {
			return reason
		}
	}
	return message
}

// isStopped reports whether a workload requests no pods, because Sluice or a user stopped it. Kueue suspends
// the workloads that it queues; these are stopped once their Workload is inactive.
func (w *Workload) isStopped() bool {
	if !workloadkind.IsPaused(w.Object) {
		return false
	}
	if _, bySluice := workloadkind.ParseStoppedUntil(w.Object); bySluice || !w.isQueuedByKueue() {
		return true
	}
	return w.Queued != nil && workloadkind.IsPaused(w.Queued)
}

func (w *Workload) isQueuedByKueue() bool {
	return w.Kind.KueueManaged && w.Object.GetLabels()[v1alpha1.LabelKueueQueue] != ""
}

// stopReason returns who stopped the workload and until when it may not start.
func (w *Workload) stopReason() string {
	until, bySluice := workloadkind.ParseStoppedUntil(w.Object)
	reason := ""
	if w.Clock != nil && w.Clock.Status.Stopped != nil {
		reason = string(w.Clock.Status.Stopped.Reason)
	}
	switch {
	case !bySluice && reason == "":
		return "stopped by a user"
	case !bySluice:
		return "stopped: " + reason + "; it may start again"
	case until.IsZero():
		return "stopped by Sluice: " + cmp.Or(reason, "its limit") + "; until an administrator decides"
	}
	return "stopped by Sluice: " + cmp.Or(reason, "its limit") + "; may start from " + until.UTC().Format("2006-01-02 15:04 MST")
}

// result returns how a workload ended, with the message of the condition that says so.
func (w *Workload) result() (status, reason string) {
	status = StatusSucceeded
	conditions, _, _ := unstructured.NestedSlice(w.Object.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		name, _ := condition["type"].(string)
		value := condition["status"]
		if name == "Failed" && value == "True" || name == w.Kind.Completion.ResultCondition && name != "" && value == "False" {
			text, _ := condition["message"].(string)
			return StatusFailed, text
		}
	}
	phase, _, _ := unstructured.NestedString(w.Object.Object, w.Kind.Completion.PhasePath...)
	if len(w.Kind.Completion.PhasePath) > 0 && (strings.EqualFold(phase, "failed") || strings.EqualFold(phase, "error")) {
		status = StatusFailed
		reason, _, _ = unstructured.NestedString(w.Object.Object, "status", "message")
		if reason == "" && len(w.Pods) > 0 {
			_, reason = DescribePod(w.Pods[0])
		}
	}
	return status, reason
}

// queueReason returns why Kueue has not admitted a workload; false if it is not queued.
func (w *Workload) queueReason() (string, bool) {
	if w.Queued == nil {
		return "waits for Kueue", w.isQueuedByKueue() && workloadkind.IsPaused(w.Object)
	}
	conditions, _, _ := unstructured.NestedSlice(w.Queued.Object, "status", "conditions")
	reason := "waits for Kueue"
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		text, _ := condition["message"].(string)
		switch {
		case condition["type"] == "Admitted" && condition["status"] == "True":
			return "", false
		case condition["type"] == "QuotaReserved" && condition["status"] == "False" && text != "":
			reason = text
		}
	}
	return reason, true
}

// podStatus returns the state of the pods that explains most: an error before a pod that waits, and that before
// those that run.
func (w *Workload) podStatus() (status, reason string, found bool) {
	rank := -1
	for _, pod := range w.Pods {
		if workload.IsPodTerminal(pod) && len(w.Pods) > 1 {
			continue
		}
		podStatus, podReason := DescribePod(pod)
		if queueReason, queued := w.queueReason(); queued && podStatus == "SchedulingGated" {
			podStatus, podReason = StatusQueued, queueReason
		}
		if r := statusRank(podStatus); r > rank {
			rank, status, reason, found = r, podStatus, podReason, true
		}
	}
	return status, reason, found
}

func statusRank(status string) int {
	switch status {
	case StatusSucceeded:
		return 0
	case StatusTerminating:
		return 1
	case StatusRunning:
		return 2
	case "ContainerCreating", "PodInitializing":
		return 3
	case StatusPending, StatusQueued, "SchedulingGated":
		return 4
	}
	return 5
}

// DescribePod returns the state of a pod as kubectl prints it, and the message about it.
func DescribePod(pod *corev1.Pod) (status, reason string) {
	switch {
	case pod.DeletionTimestamp != nil && !workload.IsPodTerminal(pod):
		return StatusTerminating, ""
	case pod.Status.Phase == corev1.PodSucceeded:
		return StatusSucceeded, ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			if condition.Reason == corev1.PodReasonSchedulingGated {
				return condition.Reason, condition.Message
			}
			return StatusPending, condition.Message
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		if status, reason := describeContainer(&pod.Status.InitContainerStatuses[i]); status != "" && status != StatusRunning {
			if status == "PodInitializing" {
				status = "Init:" + strconv.Itoa(i) + "/" + strconv.Itoa(len(pod.Spec.InitContainers))
			}
			return status, reason
		}
	}
	found, text := "", ""
	for i := range pod.Status.ContainerStatuses {
		status, reason := describeContainer(&pod.Status.ContainerStatuses[i])
		if found == "" || statusRank(status) > statusRank(found) {
			found, text = status, reason
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return cmp.Or(pod.Status.Reason, StatusFailed), cmp.Or(pod.Status.Message, text)
	case found != "":
		return found, text
	case pod.Status.Phase == corev1.PodRunning:
		return StatusRunning, ""
	case pod.Spec.NodeName != "":
		return "ContainerCreating", ""
	}
	return StatusPending, pod.Status.Message
}

// describeContainer returns the state of a container; empty for one that has ended well.
func describeContainer(status *corev1.ContainerStatus) (text, reason string) {
	switch {
	case status.State.Waiting != nil:
		return cmp.Or(status.State.Waiting.Reason, StatusPending), status.State.Waiting.Message
	case status.State.Terminated != nil && status.State.Terminated.ExitCode != 0:
		ended := status.State.Terminated
		return cmp.Or(ended.Reason, StatusFailed), cmp.Or(ended.Message, fmt.Sprintf("exit code %d", ended.ExitCode))
	case status.State.Running != nil:
		return StatusRunning, ""
	}
	return "", ""
}

// ReadyPods returns the numbers of pods that are ready, and of those that have not ended and are not terminating.
func (w *Workload) ReadyPods() (ready, all int) {
	for _, pod := range w.Pods {
		if workload.IsPodTerminal(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		all++
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	return ready, all
}
