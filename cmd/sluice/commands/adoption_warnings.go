// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/input"
)

// foreignQueueLabels are the labels by which other quota systems select a queue. In a project the policies set the queue.
var foreignQueueLabels = []string{v1alpha1.LabelKueueQueue, "kai.scheduler/queue", "runai/queue", "volcano.sh/queue-name", "queue"}

// foreignSchedulers are schedulers that Sluice does not write into pods.
var foreignSchedulers = []string{"runai-scheduler"}

// foreignNamespaceLabels are the labels by which other systems govern a namespace.
var foreignNamespaceLabels = []string{"runai/queue", "kai/project", "kueue.openshift.io/managed"}

// podProblem finds pods for which the adoption changes something.
type podProblem struct {
	matches func(*corev1.Pod) bool
	text    string
}

// addPodWarnings adds what the adoption changes for the pods that run, and for their successors.
func (a *adoption) addPodWarnings(state *adoptionState, pods []corev1.Pod) {
	running, units := []string{}, workload.NewListedResources(state.pools, nil).Units()
	for i := range pods {
		if request, err := units.ParsePod(&pods[i]); err == nil && request.RequestsGPU() && isRunning(&pods[i]) {
			running = append(running, pods[i].Name)
		}
	}
	if len(running) > 0 {
		a.warnings = append(a.warnings, listPods(running)+": they continue. The quota does not count them (condition Uncounted), so "+
			"that the enforced limit is lower by what they hold until they end")
	}
	level := input.EffectivePodSecurity(&a.project, state.department)
	for _, problem := range []podProblem{
		{hasLongRuntime(state, running), "they already run for longer than the department allows for their type of workload: once the " +
			"project is ready they get the notice of the department, and are then stopped (spec.exempt of the project prevents that)"},
		{isOfDaemonSet, "of a DaemonSet with GPUs: they continue, and the policy core.gpu refuses their successors"},
		{wasBoundByItsAuthor, "their author set spec.nodeName: they continue, and their successors are refused, since only schedulers bind pods of projects"},
		{hasForeignQueue, "they name a queue or a scheduler of another system: they continue, and their successors get the queue of the project; " +
			"remove the label or the scheduler from their templates"},
		{hasDeviceClaim, "they use ResourceClaims, whose devices no quota counts: they continue, and new claims of GPUs are refused"},
		{violates(level), fmt.Sprintf("they need more than the level %s of Pod Security that the namespace gets (spec.podSecurity): they continue, "+
			"and their successors are refused", level)},
	} {
		var names []string
		for i := range pods {
			if !workload.IsPodTerminal(&pods[i]) && problem.matches(&pods[i]) {
				names = append(names, pods[i].Name)
			}
		}
		if len(names) > 0 {
			a.warnings = append(a.warnings, listPods(names)+": "+problem.text)
		}
	}
	for _, key := range foreignNamespaceLabels {
		if value, ok := a.namespace.Labels[key]; ok {
			a.warnings = append(a.warnings, fmt.Sprintf("the namespace has the label %s=%s, so that another system governs it, too: remove the "+
				"label when the project is ready", key, value))
		}
	}
	const defaultMaxPods = 500 // of a project's namespace; see docs/platform/projects.md
	if a.pods > defaultMaxPods && len(state.department.Spec.Objects) == 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("the namespace has %d pods, and a project may have %d: raise spec.objects of the department first",
			a.pods, defaultMaxPods))
	}
}

// addQuotaWarning adds that a project's namespace has one ResourceQuota. The names are those of the present ones.
func (a *adoption) addQuotaWarning(names []string) {
	if len(names) == 0 {
		return
	}
	a.warnings = append(a.warnings, fmt.Sprintf("the namespace has the ResourceQuota %s, and gets one of Sluice's. With two the API server may admit "+
		"pods above the limits of the project (kubernetes/kubernetes#141904; condition OtherQuotas): delete it when the project is ready; its limits can "+
		"be added to Sluice's by a policy's objects", strings.Join(names, ", ")))
}

func isRunning(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" && !workload.IsPodTerminal(pod) }

// hasLongRuntime matches GPU pods that run for longer than the department's limit for their type.
func hasLongRuntime(state *adoptionState, gpuPods []string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		if !slices.Contains(gpuPods, pod.Name) || pod.Status.StartTime == nil {
			return false
		}
		limits := v1alpha1.TightestLimits(workloadTypeOf(pod), nil, state.department.Spec.Workloads)
		longest := limits.MaxRuntime.Length()
		return longest > 0 && state.now.Sub(pod.Status.StartTime.Time) > longest
	}
}

// workloadTypeOf returns the type that the policies would set, for the common kinds.
func workloadTypeOf(pod *corev1.Pod) v1alpha1.WorkloadType {
	owner := metav1.GetControllerOfNoCopy(pod)
	switch request, err := workload.ParsePod(pod); {
	case err == nil && request.Type != "":
		return request.Type
	case owner != nil && owner.Kind == "ReplicaSet":
		return v1alpha1.WorkloadInference
	case owner == nil && err == nil && request.HasTTY:
		return v1alpha1.WorkloadInteractive
	}
	return v1alpha1.WorkloadTrain
}

func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	request, err := workload.ParsePod(pod)
	return owner != nil && owner.Kind == "DaemonSet" && err == nil && request.RequestsGPU()
}

// wasBoundByItsAuthor reports whether a manager of fields, which a binding is none of, set the node.
func wasBoundByItsAuthor(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:nodeName"`)
	})
}

func hasForeignQueue(pod *corev1.Pod) bool {
	return slices.Contains(foreignSchedulers, pod.Spec.SchedulerName) ||
		slices.ContainsFunc(foreignQueueLabels, func(key string) bool { return pod.Labels[key] != "" })
}

func hasDeviceClaim(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }

// violates matches pods with the most common violations of a level of Pod Security.
func violates(level v1alpha1.PodSecurity) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		if level == v1alpha1.PodSecurityPrivileged {
			return false
		}
		spec := &pod.Spec
		return spec.HostNetwork || spec.HostPID || spec.HostIPC ||
			slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) ||
			slices.ContainsFunc(slices.Concat(spec.Containers, spec.InitContainers), func(c corev1.Container) bool {
				return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
			})
	}
}

// oneLine returns a text for a YAML comment.
func oneLine(text string) string { return printer.Sanitize(text) }
