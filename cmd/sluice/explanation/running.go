// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
)

// explainPause answers for a workload that its user suspended or scaled to zero.
func explainPause(f *Facts) *Answer {
	if f.runs() || !f.isPaused() {
		return nil
	}
	if f.Root.GetLabels()[v1alpha1.LabelKueueQueue] != "" && len(f.Queued) == 0 {
		a := &Answer{State: StateWaiting, Reason: "NotQueued", Text: "It waits until Kueue has put it into its queue, which takes seconds."}
		a.Details = append(a.Details, "If this lasts, Kueue may not be running, or may not manage its kind: ask an administrator.")
		a.add("see whether Kueue has a Workload for it", "kubectl get workloads.kueue.x-k8s.io -n "+f.namespace())
		return a
	}
	a := &Answer{State: StatePaused, Reason: "Suspended", Text: "It is suspended or scaled to zero, and Sluice does not hold it: it requests no pods."}
	if slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }) {
		a.Details = append(a.Details, "Its pods are still ending.")
	}
	if event := f.latestEvent("StopReleased"); event != nil {
		a.Details = append(a.Details, sentence(event.Message))
	}
	f.addStart(a, "")
	return a
}

// isPaused reports whether the workload is of a known kind, and suspended or scaled to zero.
func (f *Facts) isPaused() bool {
	if f.Root == nil || f.Root.GetDeletionTimestamp() != nil || !workloadkind.IsPaused(f.Root) {
		return false
	}
	_, known := workloadkind.Lookup(f.Root.GroupVersionKind().GroupKind())
	return known
}

// explainTermination answers for a workload that is being deleted.
func explainTermination(f *Facts) *Answer {
	deleted := f.Root != nil && f.Root.GetDeletionTimestamp() != nil
	for i := range f.Pods {
		deleted = deleted || f.Root == nil && f.Pods[i].DeletionTimestamp != nil
	}
	if !deleted {
		return nil
	}
	a := &Answer{State: StateEnding, Reason: "Terminating", Text: "It is being deleted. Its pods get their grace period to end."}
	a.add("see what is left", "sluice list -n "+f.namespace())
	return a
}

// soonPart is the part of its limit below which a workload ends soon.
const soonPart = 4

// explainRun answers for a workload that runs: when and why it ends.
func explainRun(f *Facts) *Answer {
	if !f.runs() {
		return nil
	}
	a := &Answer{State: StateRunning, Reason: "Running"}
	if f.Clock == nil || f.Clock.Status.State != v1alpha1.ClockStateRunning {
		a.Text = "It runs. Sluice keeps no clock for it, so no time limit ends it."
		f.addLogs(a)
		return a
	}
	status := &f.Clock.Status
	deadline := status.Deadline
	if deadline == nil {
		a.Text = "It runs, and no end is planned: your department sets no time limit for its type."
		f.addLogs(a)
	} else {
		left := deadline.At.Sub(f.Now)
		a.Text = fmt.Sprintf("It runs, and Sluice will stop it at %s (in %s), because %s.", f.minute(deadline.At.Time),
			printer.FormatDuration(max(0, left)), f.endCause(deadline.Reason))
		if whole := status.Limit; deadline.Reason != v1alpha1.EndMaxRuntime || whole == nil || left < whole.InForce.Length()/soonPart {
			a.State, a.Reason = StateEnding, string(deadline.Reason)
		}
		f.addEndSteps(a, deadline.Reason)
	}
	f.addClockConditions(a)
	if event := f.latestEvent(createFailures...); event != nil && eventTime(event).After(f.Pods[len(f.Pods)-1].CreationTimestamp.Time) {
		a.Details = append(a.Details, "Further pods of it are not created. "+f.explainFailedCreate(event.Message).Text)
	}
	return a
}

// endCause returns why a running workload will be stopped, as the rest of a sentence.
func (f *Facts) endCause(reason v1alpha1.EndReason) string {
	status := &f.Clock.Status
	switch reason {
	case v1alpha1.EndMaxRuntime:
		if status.Limit != nil {
			return "it will have run for " + status.Limit.InForce.String() + ", its time limit"
		}
		return "it will have reached its time limit"
	case v1alpha1.EndIdle:
		if status.IdleSince != nil {
			return "its GPUs are idle since " + f.minute(status.IdleSince.Time)
		}
		return "its GPUs are idle"
	case v1alpha1.EndStartTimeout:
		return "its pods hold GPUs and have not started"
	case v1alpha1.EndProjectSuspended:
		return "project " + f.ProjectName + " expires"
	}
	return f.stopCause(reason)
}

// addEndSteps adds what moves the end.
func (f *Facts) addEndSteps(a *Answer, reason v1alpha1.EndReason) {
	switch reason {
	case v1alpha1.EndIdle:
		a.Details = append(a.Details, "If it uses a GPU before, it is not stopped.")
		a.add("see its use of the GPUs", "sluice top pods -n "+f.namespace())
	case v1alpha1.EndProjectSuspended:
		f.addRenewal(a)
	default:
		f.addExtension(a, "request more time")
	}
}

// addClockConditions adds what the conditions of the clock mean for the end.
func (f *Facts) addClockConditions(a *Answer) {
	status := &f.Clock.Status
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDryRun) {
		a.Details = append(a.Details, "Your department only tries its limits out (dry run): it is announced, and not done.")
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionIdleUnknown) {
		a.Details = append(a.Details, "Whether its GPUs are idle is unknown now, and does not count.")
	}
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUnstoppable); condition != nil && condition.Status == "True" {
		a.Details = append(a.Details, "Sluice tried to stop it and could not: "+sentence(condition.Message))
	}
	if status.Deadline != nil && status.Deadline.HeldFrom != nil {
		a.Details = append(a.Details, "A pause of Sluice postponed the end.")
	}
}

// Write prints the answer as text.
func (a *Answer) Write(output io.Writer) error {
	var text strings.Builder
	name := a.Name
	if a.Kind != "" {
		name = a.Kind + "/" + a.Name
	}
	where := " in namespace " + a.Namespace
	if a.Project != "" {
		where += " (project " + a.Project + ")"
	}
	text.WriteString(printer.Sanitize(name+where) + ": " + string(a.State) + "\n\n" + printer.Sanitize(a.Text) + "\n")
	for _, detail := range a.Details {
		text.WriteString("- " + printer.Sanitize(detail) + "\n")
	}
	if len(a.Steps) > 0 {
		text.WriteString("\nWhat you can do:\n")
	}
	for _, step := range a.Steps {
		text.WriteString("- " + printer.Sanitize(step.Text))
		if step.Command != "" {
			text.WriteString(":\n    " + printer.Sanitize(step.Command))
		}
		text.WriteString("\n")
	}
	if len(a.Unread) > 0 {
		text.WriteString("\nNot read, so this may be incomplete: " + printer.Sanitize(strings.Join(a.Unread, "; ")) + "\n")
	}
	_, err := io.WriteString(output, text.String())
	return err
}
