// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
)

// explainStop answers for a workload that Sluice stopped, until it is started again.
func explainStop(f *Facts) *Answer {
	if f.Clock == nil || f.Clock.Status.Stopped == nil ||
		f.Clock.Status.State != v1alpha1.ClockStateStopped && f.Clock.Status.State != v1alpha1.ClockStateStopping {
		return nil
	}
	stop := f.Clock.Status.Stopped
	a := &Answer{State: StateStopped, Reason: string(stop.Reason)}
	a.Text = fmt.Sprintf("Sluice stopped it at %s, because %s.", f.minute(stop.At.Time), f.stopCause(stop.Reason))
	if f.Clock.Status.State == v1alpha1.ClockStateStopping {
		a.Details = append(a.Details, "Its pods are still ending.")
	}
	switch until := stop.Until; {
	case stop.Reason == v1alpha1.EndProjectSuspended || stop.Reason == v1alpha1.EndProjectDeleted:
	case until == nil:
		a.Details = append(a.Details, "It can be started again only after an approver has decided.")
	case f.Now.Before(until.Time):
		sooner := ", or as soon as it gets more time"
		if stop.Reason == v1alpha1.EndShareExceeded || stop.Reason == v1alpha1.EndPreempted || stop.Reason == v1alpha1.EndQuotaReclaimed {
			sooner = ""
		}
		a.Details = append(a.Details, fmt.Sprintf("It can be started again at %s (in %s)%s.",
			f.minute(until.Time), printer.FormatDuration(until.Sub(f.Now)), sooner))
	default:
		a.Details = append(a.Details, "It can be started again now.")
		f.addStart(a, "")
		return a
	}
	switch stop.Reason {
	case v1alpha1.EndProjectSuspended:
		f.addRenewal(a)
	case v1alpha1.EndProjectDeleted:
		a.add("create it in another project; this shows yours", "sluice whoami")
	case v1alpha1.EndShareExceeded, v1alpha1.EndPreempted, v1alpha1.EndQuotaReclaimed:
		f.addStart(a, " then")
	default:
		f.addExtension(a, "request more time; then it may be started at once")
		f.addStart(a, " then")
	}
	return a
}

// stopCause returns why the workload was stopped, as the rest of a sentence.
func (f *Facts) stopCause(reason v1alpha1.EndReason) string {
	status := &f.Clock.Status
	switch reason {
	case v1alpha1.EndMaxRuntime:
		if status.Limit != nil {
			return "it had run for " + status.Limit.InForce.String() + ", its time limit"
		}
		return "it had reached its time limit"
	case v1alpha1.EndIdle:
		return "its GPUs had been idle for the idle timeout of the department"
	case v1alpha1.EndStartTimeout:
		return "its pods had a node and GPUs, and none of them started in time"
	case v1alpha1.EndProjectSuspended:
		return "project " + f.ProjectName + " has expired and is suspended"
	case v1alpha1.EndProjectDeleted:
		return "project " + f.ProjectName + " is being deleted"
	case v1alpha1.EndShareExceeded:
		return "it used more GPU memory than its share"
	case v1alpha1.EndPreempted:
		return "another workload with precedence needed its GPUs"
	case v1alpha1.EndQuotaReclaimed:
		return "another project claimed its guarantee"
	}
	return "of " + string(reason)
}

// addStart adds how the workload is started again, and when: "", or " then" for later.
func (f *Facts) addStart(a *Answer, when string) {
	if f.Root == nil {
		a.add("create it again"+when+", with your own file", "kubectl create -n "+f.namespace()+" -f FILE")
		return
	}
	kind, _ := workloadkind.Lookup(f.Root.GroupVersionKind().GroupKind())
	kind = kind.ForObject(f.Root)
	switch {
	case !kind.IsReversible():
		a.add("start a copy of it"+when, "sluice clone "+f.reference()+" "+f.copyName()+" -n "+f.namespace())
	case kind.KueueManaged && f.Root.GetLabels()[v1alpha1.LabelKueueQueue] != "":
		a.add("start it again"+when+", or ask an administrator to, if you may not change Kueue's Workloads", "sluice start "+f.target())
	default:
		a.add("start it again"+when, "sluice start "+f.target())
	}
}

// copyName returns a name for a copy of the workload.
func (f *Facts) copyName() string {
	const most = 50 // controllers add to the name
	if name := f.Workload.Name + "-2"; len(name) <= most {
		return argument(name, "NEW")
	}
	return "NEW"
}

// addExtension adds a request for more time.
func (f *Facts) addExtension(a *Answer, text string) {
	for i := range f.Extensions {
		if e := &f.Extensions[i]; e.Spec.Action == v1alpha1.ActionExtend && e.Status.Decision == "" {
			a.add("wait for the approver, or see the request", "kubectl get slext "+argument(e.Name, "NAME")+" -n "+f.namespace())
			return
		}
	}
	a.add(text, "sluice extend "+f.reference()+" -n "+f.namespace()+` --by 24h --reason "..."`)
}

// addRenewal adds the renewal of the project, which only owners may request.
func (f *Facts) addRenewal(a *Answer) {
	text := "ask an owner of the project to renew it"
	if f.Project != nil && len(f.Project.Spec.Owners) > 0 {
		var names []string
		for i := range f.Project.Spec.Owners[:min(3, len(f.Project.Spec.Owners))] {
			names = append(names, string(f.Project.Spec.Owners[i].Name))
		}
		text = "ask an owner of the project (" + strings.Join(names, ", ") + ") to renew it"
	}
	a.add(text, "sluice renew project/"+argument(f.ProjectName, "NAME")+` --reason "..."`)
}

// explainClosedProject answers for a workload without running pods in a project that accepts none.
func explainClosedProject(f *Facts) *Answer {
	if f.Project == nil || len(f.Pods) > 0 || f.Project.Status.ClosedAt == nil && f.Project.StopsWorkloads() == "" {
		return nil
	}
	// A workload without GPUs has no clock, and the project still accepts its pods.
	event := f.latestEvent(createFailures...)
	if event == nil && f.Clock == nil || event != nil && !strings.Contains(event.Message, "(policy core.project)") {
		return nil
	}
	phase := f.Project.Status.Phase
	a := &Answer{State: StateRefused, Reason: "Project" + string(phase)}
	if f.Project.StopsWorkloads() == v1alpha1.EndProjectDeleted {
		a.Text = "Project " + f.ProjectName + " is being deleted: it accepts no new pods with GPUs."
		a.add("create it in another project; this shows yours", "sluice whoami")
		return a
	}
	a.Text = "Project " + f.ProjectName + " has expired: it accepts no new pods with GPUs."
	if at := f.Project.Status.ClosedAt; at != nil {
		a.Text = fmt.Sprintf("Project %s has expired: it has accepted no new pods with GPUs since %s.", f.ProjectName, f.minute(at.Time))
	}
	f.addRenewal(a)
	return a
}

// explainCompletion answers for a workload that finished by itself.
func explainCompletion(f *Facts) *Answer {
	if f.Root == nil {
		return explainEndedClock(f)
	}
	kind, known := workloadkind.Lookup(f.Root.GroupVersionKind().GroupKind())
	if f.Root.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return explainEndedPod(f)
	}
	if !known || !kind.IsFinished(f.Root) {
		return nil
	}
	condition := failedCondition(f.Root)
	if condition == nil {
		return &Answer{State: StateFinished, Reason: "Completed", Text: "It has finished. Nothing holds it."}
	}
	a := &Answer{State: StateFailed, Reason: textOr(condition["reason"], "Failed")}
	a.Text = "It has failed: " + sentence(textOr(condition["message"], a.Reason))
	if a.Reason == "DeadlineExceeded" && f.Clock != nil && f.Clock.Status.Stopped != nil {
		a.Details = append(a.Details, fmt.Sprintf("Sluice ended this run at %s, because %s.",
			f.minute(f.Clock.Status.Stopped.At.Time), f.stopCause(f.Clock.Status.Stopped.Reason)))
	}
	if detail := f.describeLastExit(); detail != "" {
		a.Details = append(a.Details, detail)
	}
	f.addLogs(a)
	return a
}

// explainEndedClock answers for a workload that no longer exists.
func explainEndedClock(f *Facts) *Answer {
	if f.Clock == nil || len(f.Pods) > 0 {
		return nil
	}
	a := &Answer{State: StateFinished, Reason: string(f.Clock.Status.State)}
	switch f.Clock.Status.State {
	case v1alpha1.ClockStateFinished:
		a.Text = "It finished by itself, and was deleted afterwards."
	case v1alpha1.ClockStateDeleted:
		a.Text = "It was deleted. Sluice did not stop it."
		if event := f.latestEvent("Preempted", "ShareExceeded", "LimitExceeded"); event != nil {
			a.State, a.Reason = StatePreempted, event.Reason
			a.Text = "It was ended: " + sentence(event.Message)
		}
		f.addStart(a, "")
	default:
		return nil
	}
	return a
}

// failedCondition returns the condition of a finished workload that says that it failed, or nil.
func failedCondition(root *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(root.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		name, status := textOr(condition["type"], ""), textOr(condition["status"], "")
		if name == "Failed" && status == "True" || name == "Succeeded" && status == "False" {
			return condition
		}
	}
	return nil
}

// minute formats a time in the zone of the answer.
func (f *Facts) minute(at time.Time) string { return printer.FormatMinute(at, f.Zone) }

func textOr(value any, otherwise string) string {
	if text, _ := value.(string); text != "" {
		return text
	}
	return otherwise
}

// runs reports whether a pod of the workload runs, and is not ending.
func (f *Facts) runs() bool {
	for i := range f.Pods {
		if f.Pods[i].Status.Phase == corev1.PodRunning && f.Pods[i].DeletionTimestamp == nil {
			return true
		}
	}
	return false
}
