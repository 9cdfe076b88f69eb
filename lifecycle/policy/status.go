// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
)

const (
	// maxErrors is how many errors the status holds.
	maxErrors = 20
	// maxWarnings is how many warnings the condition's message holds; the rest is
	// counted.
	maxWarnings = 5
)

// Status is a policy's status after the engine's report, which is of the policy's
// present generation. What others write there is kept, and so are transition
// times where the condition did not change.
//
// standIns are the policies in the place of this one.
func Status(object *v1alpha1.Policy, report engine.Report, standIns []live.StandIn, now metav1.Time) v1alpha1.PolicyStatus {
	status := *object.Status.DeepCopy()
	status.ObservedGeneration = report.Generation
	status.EnforcedGeneration = report.EnforcedGeneration
	status.Errors = nil
	for _, problem := range report.Problems[:min(len(report.Problems), maxErrors)] {
		status.Errors = append(status.Errors, problem.Status())
	}
	for _, condition := range []metav1.Condition{compiled(report), ready(report, standIns)} {
		condition.ObservedGeneration = report.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func compiled(report engine.Report) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonCompiled, Message: "compiled and in force",
	}
	if problems := ofSource(report); len(problems) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Reason = v1alpha1.ReasonCompileError
		condition.Message = first(problems) + "; " + meanwhile(report)
	}
	condition.Message += warnings(report.Warnings)
	return condition
}

// first is the first of the problems, and how many more there are.
func first(problems []engine.Problem) string {
	message := placed(problems[0])
	if more := len(problems) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// meanwhile says what is in force as long as the source is wrong.
func meanwhile(report engine.Report) string {
	switch {
	case !report.InForce:
		return "no version of this policy is in force"
	case report.EnforcedGeneration == 0:
		return "the built-in policy stays in force"
	}
	return fmt.Sprintf("generation %d stays in force", report.EnforcedGeneration)
}

func warnings(all []engine.Problem) string {
	if len(all) == 0 {
		return ""
	}
	texts := make([]string, 0, maxWarnings)
	for _, warning := range all[:min(len(all), maxWarnings)] {
		texts = append(texts, placed(warning))
	}
	message := "; look at " + strings.Join(texts, "; ")
	if more := len(all) - maxWarnings; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return message
}

// placed is a problem with its place in the policy, whose name the object has.
func placed(problem engine.Problem) string {
	shown := problem.Status()
	if shown.Line > 0 {
		return fmt.Sprintf("%d:%d: %s", shown.Line, shown.Column, shown.Message)
	}
	return shown.Message
}
