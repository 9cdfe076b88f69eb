// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/quota/pending"
	"sluice.dev/policies/kaigroup"
)

// conditionsOf returns the conditions of a Kueue Workload. An object without readable conditions
// has none.
func conditionsOf(object *unstructured.Unstructured) []metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	fields, _, _ := unstructured.NestedMap(object.Object, "status")
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status) != nil {
		return nil
	}
	return status.Conditions
}

// explainKueue answers for a workload in a queue of Kueue.
func explainKueue(f *Facts) *Answer {
	if f.runs() {
		return nil
	}
	for i := range f.Queued {
		queued := &f.Queued[i]
		conditions := conditionsOf(queued)
		if meta.IsStatusConditionTrue(conditions, "Finished") || meta.IsStatusConditionTrue(conditions, "Admitted") {
			continue
		}
		if active, found, _ := unstructured.NestedBool(queued.Object, "spec", "active"); found && !active {
			record := workloadkind.ParsePutBack(queued.GetAnnotations()[v1alpha1.AnnotationPutBack])
			if !record.Until.IsZero() {
				a := &Answer{State: StateWaiting, Reason: "PutBack", Text: fmt.Sprintf("No pod of it started within its start timeout, "+
					"so its GPUs were given back. It keeps its place in Kueue's queue, and takes part again at %s.", f.minute(record.Until))}
				a.add("see why its pods did not start", "kubectl get events -n "+f.namespace())
				return a
			}
			a := &Answer{State: StatePaused, Reason: "QueueInactive", Text: "Kueue does not start it: its Workload is set to inactive (spec.active is false)."}
			if evicted := meta.FindStatusCondition(conditions, "Evicted"); evicted != nil && evicted.Message != "" {
				a.Details = append(a.Details, "Kueue reports: "+sentence(evicted.Message))
			}
			a.add("queue it again, or ask an administrator to, if you may not change Kueue's Workloads", "sluice start "+f.target())
			return a
		}
		return f.explainQueued(conditions)
	}
	return nil
}

// explainQueued answers for a Kueue Workload that is not admitted.
func (f *Facts) explainQueued(conditions []metav1.Condition) *Answer {
	reserved := meta.FindStatusCondition(conditions, "QuotaReserved")
	a := &Answer{State: StateWaiting, Reason: "Queued"}
	switch {
	case reserved == nil:
		a.Text = "It waits in Kueue's queue: " + sentence(pending.ExplainQueued("").Details)
	case reserved.Status == metav1.ConditionTrue:
		a.Reason, a.Text = "AdmissionCheck", "Its GPUs are reserved, but a Kueue admission check is not complete."
	default:
		a.Text = "It waits in Kueue's queue: " + sentence(pending.ExplainQueued(reserved.Message).Details)
	}
	if evicted := meta.FindStatusCondition(conditions, "Evicted"); evicted != nil && evicted.Status == metav1.ConditionTrue {
		cause, message := evicted.Reason, evicted.Message
		if preempted := meta.FindStatusCondition(conditions, "Preempted"); preempted != nil && preempted.Status == metav1.ConditionTrue {
			cause, message = preempted.Reason, preempted.Message
		}
		verb := "stopped"
		if evicted.Reason == "Preempted" {
			verb = "preempted"
		}
		a.State, a.Reason = StatePreempted, "EvictedByKueue"
		a.Details = append(a.Details, a.Text)
		a.Text = fmt.Sprintf("It was %s at %s %s", verb, f.minute(evicted.LastTransitionTime.Time),
			sentence(pending.ExplainEviction(cause, message)))
	}
	f.addQuotaHolders(a)
	a.Details = append(a.Details, "It starts by itself when its turn comes.")
	a.add("see what is used and free", "sluice whoami")
	a.add("see the queue", "kubectl get workloads.kueue.x-k8s.io -n "+f.namespace())
	return a
}

// explainGroup answers for a pod group that KAI-Scheduler could not place.
func explainGroup(f *Facts) *Answer {
	if f.runs() || f.Project == nil {
		return nil
	}
	for i := range f.Groups {
		reasons := kaigroup.Group(f.Groups[i].Object).UnschedulableReasons()
		if len(reasons) == 0 {
			continue
		}
		placement := kaigroup.Placement{Pool: "of its queue", Queue: kaigroup.Group(f.Groups[i].Object).Queue(), UnitsPerGPU: 1}
		if len(f.Pods) > 0 && f.Pods[0].Labels[v1alpha1.LabelNodePool] != "" {
			placement.Pool = f.Pods[0].Labels[v1alpha1.LabelNodePool]
		}
		// The amounts are in the units of the pool, which only administrators may read.
		why := pending.ExplainUnschedulable(reasons, placement, f.Project).Summary
		a := &Answer{State: StateWaiting, Reason: "Unschedulable", Text: "KAI-Scheduler cannot place it yet: " + sentence(why)}
		f.addQuotaHolders(a)
		a.add("see what is used and free", "sluice whoami")
		a.add("see the whole message of the scheduler", "kubectl describe podgroups.scheduling.run.ai/"+
			argument(f.Groups[i].GetName(), "NAME")+" -n "+f.namespace())
		return a
	}
	return nil
}

// explainPreemptedPod answers for a workload whose last pod was preempted, and that has none that runs.
func explainPreemptedPod(f *Facts) *Answer {
	if f.runs() {
		return nil
	}
	for i := range f.Pods {
		if slices.ContainsFunc(f.Pods[i+1:], func(later corev1.Pod) bool { return later.Spec.NodeName != "" }) {
			continue // another pod took its place
		}
		for _, condition := range f.Pods[i].Status.Conditions {
			if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue {
				continue
			}
			a := &Answer{State: StatePreempted, Reason: condition.Reason}
			a.Text = fmt.Sprintf("Pod %s was ended at %s: %s", f.Pods[i].Name, f.minute(condition.LastTransitionTime.Time),
				sentence(printer.Sanitize(textOr(condition.Message, condition.Reason))))
			if condition.Reason == "PreemptionByScheduler" {
				a.Details = append(a.Details, "Training may exceed the guaranteed quota, and gives way to work that is guaranteed these GPUs.")
			}
			if f.Workload.Kind == "Pod" {
				f.addStart(a, "")
				return a
			}
			a.Details = append(a.Details, "Its controller creates another pod, which waits for free GPUs.")
			a.add("see its pods", "sluice get "+f.target())
			return a
		}
	}
	return nil
}

// The texts with which admission records that a policy would have refused the pod.
var sparedDecisions = []string{"denial paused", "denial exempted"}

// describeDecisions returns what policies changed in the newest pod, from its annotation. Sluice's own change each pod.
func (f *Facts) describeDecisions() []string {
	var newest *corev1.Pod
	for i := range f.Pods {
		if newest == nil || newest.CreationTimestamp.Before(&f.Pods[i].CreationTimestamp) {
			newest = &f.Pods[i]
		}
	}
	var decisions map[string][]string
	if newest == nil || json.Unmarshal([]byte(newest.Annotations[v1alpha1.AnnotationDecisions]), &decisions) != nil {
		return nil
	}
	var own, details, spared []string
	for _, name := range slices.Sorted(maps.Keys(decisions)) {
		fields := slices.DeleteFunc(decisions[name], func(field string) bool { return slices.Contains(sparedDecisions, field) })
		if len(fields) < len(decisions[name]) {
			spared = append(spared, name)
		}
		switch {
		case strings.HasPrefix(name, "core."):
			own = append(own, name)
		case len(fields) > 0:
			details = append(details, sentence("Policy "+name+" changed its pod: "+strings.Join(fields, ", ")))
		}
	}
	if len(own) > 0 {
		details = append(details, "Sluice's own policies changed its pod: "+strings.Join(own, ", ")+"; the annotation "+v1alpha1.AnnotationDecisions+" has the fields.")
	}
	if len(spared) > 0 {
		details = append(details, "Without a pause or an exemption, policy "+strings.Join(spared, ", ")+" would have refused it.")
	}
	return details
}

// maxQuoted is the number of characters of a foreign message that an answer repeats.
const maxQuoted = 600

// sentence returns a foreign message as one sentence of bounded length, on one line.
func sentence(message string) string {
	text := strings.TrimRight(shorten(message), ". ")
	return text + "."
}

// shorten returns a text on one line and of bounded length.
func shorten(text string) string {
	text = v1alpha1.TruncateText(text, 4*maxQuoted) // a character can become several
	return v1alpha1.TruncateText(printer.Sanitize(strings.Join(strings.Fields(text), " ")), maxQuoted)
}
