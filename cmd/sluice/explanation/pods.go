// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// explainEviction answers for a pod whose eviction Sluice announced.
func explainEviction(f *Facts) *Answer {
	for i := range f.Pods {
		pod := &f.Pods[i]
		at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.AnnotationPreemptAt])
		if err != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		reason := v1alpha1.EndReason(pod.Annotations[v1alpha1.AnnotationPreemptReason])
		a := &Answer{State: StateEnding, Reason: string(reason)}
		when := fmt.Sprintf("Pod %s will be evicted at %s (in %s)", pod.Name, f.minute(at), printer.FormatDuration(at.Sub(f.MachineNow)))
		if !at.After(f.MachineNow) {
			when = fmt.Sprintf("Pod %s is being evicted since %s", pod.Name, f.minute(at))
		}
		switch reason {
		case v1alpha1.EndShareExceeded:
			a.Text = when + ", because it uses more GPU memory than its share."
			a.Details = append(a.Details, "If it is back within its share before, nothing happens: reduce the batch size, or the memory limit of your framework.")
			a.add("see how much it uses", "sluice top pods -n "+f.namespace())
		default:
			a.Text = when + ", because a workload with precedence needs its GPUs."
			if reason == v1alpha1.EndQuotaReclaimed {
				a.Text = when + ", because its project is over its guarantee, and another one claims its own."
			}
			a.Details = append(a.Details, "Save a checkpoint now. Its controller, if it has one, creates another pod that waits for free GPUs.")
			f.addLogs(a)
		}
		return a
	}
	return nil
}

var (
	insufficientPattern = regexp.MustCompile(`(\d+) Insufficient ([A-Za-z0-9./-]*[A-Za-z0-9])`)
	taintPattern        = regexp.MustCompile(`untolerated taint\(?s?\)? ?\{([^}]*)\}`)
)

// NamesAntiAffinity reports whether a scheduler's message has anti-affinity among the reasons why a pod waits.
func NamesAntiAffinity(message string) bool { return strings.Contains(message, "anti-affinity") }

// explainUnscheduled answers for a workload whose pods have no node.
func explainUnscheduled(f *Facts) *Answer {
	if f.runs() {
		return nil
	}
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
			continue
		}
		if gates := pod.Spec.SchedulingGates; slices.ContainsFunc(gates, func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.GateKueue }) {
			a := &Answer{State: StateWaiting, Reason: "Queued", Text: "Its pods wait until Kueue admits them."}
			f.addQuotaHolders(a)
			a.add("see the queue", "kubectl get workloads.kueue.x-k8s.io -n "+f.namespace())
			return a
		} else if len(gates) > 0 {
			a := &Answer{State: StateWaiting, Reason: "SchedulingGated", Text: "Its pods wait for the scheduling gate " + shorten(gates[0].Name) + ", which another program removes."}
			a.add("see the pod", f.describePod(pod))
			return a
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return f.explainUnschedulable(pod, condition.Message)
			}
		}
		if event := f.latestEvent("FailedScheduling", "Unschedulable"); event != nil {
			return f.explainUnschedulable(pod, event.Message)
		}
		a := &Answer{State: StateWaiting, Reason: "NotScheduled", Text: "Pod " + pod.Name + " has no node yet, and its scheduler has not said why."}
		a.Details = append(a.Details, "Its scheduler is "+shorten(pod.Spec.SchedulerName)+
			". If this does not change within a minute, the scheduler may not be running: ask an administrator.")
		a.add("see the pod", f.describePod(pod))
		return a
	}
	return nil
}

// explainUnschedulable answers for a pod that its scheduler could not place.
func (f *Facts) explainUnschedulable(pod *corev1.Pod, message string) *Answer {
	a := &Answer{State: StateWaiting, Reason: "Unschedulable"}
	insufficient := insufficientPattern.FindAllStringSubmatch(message, 8)
	taint := taintPattern.FindStringSubmatch(message)
	pool := pod.Labels[v1alpha1.LabelNodePool]
	where := "no node"
	if pool != "" {
		where = "no node of node pool " + pool
	}
	rival := ""
	if NamesAntiAffinity(message) {
		rival = f.describeAntiAffinity(pod)
	}
	switch {
	case taint != nil && strings.HasPrefix(taint[1], v1alpha1.TaintRepartitioning):
		a.Reason = "Repartitioning"
		a.Text = "It waits while the GPUs of its node pool are partitioned for new slices. It starts by itself afterwards."
	case len(insufficient) > 0:
		a.Reason = "InsufficientResources"
		var names []string
		for _, m := range insufficient {
			names = append(names, m[2])
		}
		a.Text = fmt.Sprintf("It is within your quota, and %s has enough free %s now. It starts by itself when another workload ends.",
			where, strings.Join(names, " and "))
		if strings.HasPrefix(names[0], "nvidia.com/mig-") {
			a.Details = append(a.Details, "Slices are made on demand: if GPUs of the pool are free, they are partitioned within minutes.")
		}
	case rival != "":
		a.Reason = "AntiAffinity"
		a.Text = rival
	case strings.Contains(message, "persistentvolumeclaim"), strings.Contains(message, "PersistentVolumeClaim"), strings.Contains(message, "volume"):
		a.Reason = "Volume"
		a.Text = "It waits for a volume: " + sentence(message)
		a.add("see the volume claims", "kubectl get persistentvolumeclaims -n "+f.namespace())
	case strings.Contains(message, "node affinity/selector") && len(pod.Spec.NodeSelector) > 0:
		a.State, a.Reason = StateRefused, "NodeSelector"
		a.Text = fmt.Sprintf("Its nodeSelector matches %s, so it never starts. Remove it: node pools are named with the annotation %s.",
			where, v1alpha1.AnnotationNodePools)
		f.addCorrection(a)
	case strings.Contains(message, "node affinity/selector"):
		a.Reason = "NoNode"
		a.Text = fmt.Sprintf("It is within your quota, and %s is there for it now. Nodes may be under maintenance: if this lasts, ask an administrator.", where)
	default:
		a.Text = "Its scheduler cannot place it: " + sentence(message)
	}
	if len(a.Steps) == 0 {
		f.addQuotaHolders(a)
		f.addList(a)
	}
	if rival != "" && a.Text != rival {
		a.Details = append(a.Details, rival)
	}
	a.Details = append(a.Details, "The scheduler reports: "+sentence(message))
	a.add("see the pod", f.describePod(pod))
	return a
}

// containerFailures explain the reasons of containers that wait.
var containerFailures = map[string]string{
	"ErrImagePull":               "its image cannot be pulled",
	"ImagePullBackOff":           "its image cannot be pulled",
	"InvalidImageName":           "the name of its image is invalid",
	"ErrImageNeverPull":          "its image is not on the node, and imagePullPolicy is Never",
	"CreateContainerConfigError": "a ConfigMap, a Secret or a variable that it names does not exist",
	"CreateContainerError":       "its container cannot be created",
	"RunContainerError":          "its command cannot be started",
	"CrashLoopBackOff":           "its program ends again and again",
}

// explainContainers answers for pods that have a node and do not run as they should.
func explainContainers(f *Facts) *Answer {
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			waiting := status.State.Waiting
			if waiting == nil || containerFailures[waiting.Reason] == "" {
				continue
			}
			a := &Answer{State: StateFailed, Reason: waiting.Reason}
			a.Text = fmt.Sprintf("Pod %s has a node, but container %s does not run: %s.", pod.Name, status.Name, containerFailures[waiting.Reason])
			if waiting.Message != "" {
				a.Details = append(a.Details, "The kubelet reports: "+sentence(waiting.Message))
			}
			if detail := f.describeLastExit(); detail != "" {
				a.Details = append(a.Details, detail)
			}
			if strings.Contains(waiting.Reason, "Image") {
				a.Details = append(a.Details, "Its image is "+shorten(status.Image)+".")
				f.addCorrection(a)
			}
			if waiting.Reason == "CrashLoopBackOff" {
				f.addLogs(a)
			}
			a.add("see the pod", f.describePod(pod))
			return a
		}
	}
	if f.runs() {
		return nil
	}
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			continue
		}
		a := &Answer{State: StateStarting, Reason: "ContainerCreating"}
		a.Text = fmt.Sprintf("Pod %s starts on node %s: images are pulled and volumes mounted, for %s now.", pod.Name, pod.Spec.NodeName,
			printer.FormatDuration(f.MachineNow.Sub(startOf(pod))))
		if event := f.latestEvent("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"); event != nil {
			a.Reason = event.Reason
			a.Details = append(a.Details, "The kubelet reports: "+sentence(event.Message))
		}
		if f.Clock != nil && f.Clock.Status.Deadline != nil {
			a.Details = append(a.Details, "If it has not started by "+f.minute(f.Clock.Status.Deadline.At.Time)+", Sluice gives its GPUs to others.")
		}
		a.add("see the pod", f.describePod(pod))
		return a
	}
	return nil
}

// startOf returns when the kubelet accepted a pod, or else when the pod was created.
func startOf(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// explainEndedPod answers for a workload that is a pod and has ended.
func explainEndedPod(f *Facts) *Answer {
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.Name != f.Workload.Name {
			continue
		}
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			return &Answer{State: StateFinished, Reason: "Completed", Text: "It has finished. Nothing holds it."}
		case corev1.PodFailed:
			if preempted := explainPreemptedPod(f); preempted != nil {
				return preempted
			}
			a := &Answer{State: StateFailed, Reason: textOr(pod.Status.Reason, "Failed"), Text: "It has failed."}
			if pod.Status.Message != "" {
				a.Text = "It has failed: " + sentence(pod.Status.Message)
			}
			if detail := f.describeLastExit(); detail != "" {
				a.Details = append(a.Details, detail)
			}
			f.addLogs(a)
			return a
		}
	}
	return nil
}

// describeLastExit returns how a container of the workload last ended, if not with success.
func (f *Facts) describeLastExit() string {
	for i := range f.Pods {
		pod := &f.Pods[i]
		for _, status := range pod.Status.ContainerStatuses {
			ended := status.State.Terminated
			if ended == nil {
				ended = status.LastTerminationState.Terminated
			}
			if ended == nil || ended.ExitCode == 0 {
				continue
			}
			text := fmt.Sprintf("Container %s of pod %s ended with exit code %d", status.Name, pod.Name, ended.ExitCode)
			if ended.Reason == "OOMKilled" {
				return text + ": it used more memory than its limit (resources.limits.memory)."
			}
			return text + "."
		}
	}
	return ""
}

// addLogs adds the logs of the newest pod, or of the workload.
func (f *Facts) addLogs(a *Answer) {
	if len(f.Pods) > 0 {
		a.add("read its logs", "sluice logs "+f.reference()+" --pod "+argument(f.Pods[len(f.Pods)-1].Name, "NAME")+" -n "+f.namespace()+" --tail 50")
		return
	}
	a.add("see all that is recorded", "kubectl describe "+f.target())
}

func (f *Facts) describePod(pod *corev1.Pod) string {
	return "kubectl describe pod/" + argument(pod.Name, "NAME") + " -n " + f.namespace()
}
