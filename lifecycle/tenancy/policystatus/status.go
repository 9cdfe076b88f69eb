// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

const (
	// maxErrors is how many errors the status holds.
	maxErrors = 20
	// maxWarnings is how many warnings the condition's message holds; the rest is
	// counted.
	maxWarnings = 5
)

// BuildStatus is a policy's status after the engine's report, which is of the policy's
// present generation. What others write there is kept, and so are transition
// times where the condition did not change.
//
// standIns are the policies in the place of this one.
func BuildStatus(object *v1alpha1.Policy, report engine.Report, standIns []store.Replacement, now metav1.Time) v1alpha1.PolicyStatus {
	status := *object.Status.DeepCopy()
	status.ObservedGeneration = report.Generation
	status.EnforcedGeneration = report.EnforcedGeneration
	status.Errors = nil
	for _, problem := range report.Problems[:min(len(report.Problems), maxErrors)] {
		status.Errors = append(status.Errors, problem.Status())
	}
	for _, condition := range []metav1.Condition{compiledCondition(report), readyCondition(report, standIns)} {
		condition.ObservedGeneration = report.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func compiledCondition(report engine.Report) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonCompiled, Message: "compiled and in force",
	}
	if problems := sourceProblems(report); len(problems) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Reason = v1alpha1.ReasonCompileError
		condition.Message = summarizeProblems(problems) + "; " + enforcedVersion(report)
	}
	condition.Message += formatWarnings(report.Warnings)
	return condition
}

// summarizeProblems is the first of the problems, and how many more there are.
func summarizeProblems(problems []engine.Problem) string {
	message := formatProblem(problems[0])
	if more := len(problems) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// enforcedVersion says what is in force as long as the source is wrong.
func enforcedVersion(report engine.Report) string {
	switch {
	case !report.Active:
		return "no version of this policy is in force"
	case report.EnforcedGeneration == 0:
		return "the built-in policy stays in force"
	}
	return fmt.Sprintf("generation %d stays in force", report.EnforcedGeneration)
}

func formatWarnings(all []engine.Problem) string {
	if len(all) == 0 {
		return ""
	}
	texts := make([]string, 0, maxWarnings)
	for _, warning := range all[:min(len(all), maxWarnings)] {
		texts = append(texts, formatProblem(warning))
	}
	message := "; look at " + strings.Join(texts, "; ")
	if more := len(all) - maxWarnings; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return message
}

// formatProblem is a problem with its place in the policy, whose name the object has.
func formatProblem(problem engine.Problem) string {
	shown := problem.Status()
	if shown.Line > 0 {
		return fmt.Sprintf("%d:%d: %s", shown.Line, shown.Column, shown.Message)
	}
	return shown.Message
}

// The reasons why a policy is not asked as its object says.
const (
	reasonReplaced          = "Replaced"
	reasonInvalidParameters = "InvalidParameters"
)

// readyCondition tells whether pods are judged by the policy as its object shows it.
func readyCondition(report engine.Report, standIns []store.Replacement) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonReady, Message: "in force",
	}
	not := func(reason, message string) metav1.Condition {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
		return condition
	}
	switch source, set := sourceProblems(report), parameterProblems(report); {
	case len(source) > 0:
		return not(v1alpha1.ReasonCompileError, summarizeProblems(source)+"; "+enforcedVersion(report))
	case len(set) > 0:
		stay := "the parameters as shipped are in force"
		if report.EnforcedGeneration > 0 {
			stay = fmt.Sprintf("the parameters of generation %d stay in force", report.EnforcedGeneration)
		}
		return not(reasonInvalidParameters, summarizeProblems(set)+"; "+stay)
	}
	var parts []string
	for _, standIn := range standIns {
		if standIn.IsUnscoped() {
			return not(reasonReplaced, fmt.Sprintf("policy %s stands in its place (spec.replaces); pods are not judged by this one", standIn.Policy))
		}
		parts = append(parts, describeReplacement(standIn))
	}
	if len(parts) > 0 {
		condition.Reason = reasonReplaced
		condition.Message = "in force, but " + strings.Join(parts, ", and ")
	}
	return condition
}

// describeReplacement says for whom a policy stands in this one's place.
func describeReplacement(standIn store.Replacement) string {
	var whose []string
	if len(standIn.Departments) > 0 {
		whose = append(whose, "of departments "+strings.Join(standIn.Departments, ", "))
	}
	if len(standIn.Projects) > 0 {
		whose = append(whose, "of projects "+strings.Join(standIn.Projects, ", "))
	}
	return fmt.Sprintf("policy %s stands in its place (spec.replaces) for pods %s", standIn.Policy, strings.Join(whose, " and "))
}

// sourceProblems and ofParameters are the problems of a report by what is wrong: the
// Rego, or what is set of a built-in policy.
func sourceProblems(report engine.Report) []engine.Problem    { return filterProblems(report, false) }
func parameterProblems(report engine.Report) []engine.Problem { return filterProblems(report, true) }

func filterProblems(report engine.Report, ofParameters bool) []engine.Problem {
	var found []engine.Problem
	for _, problem := range report.Problems {
		if strings.HasPrefix(problem.Message, policies.ParametersField) == ofParameters {
			found = append(found, problem)
		}
	}
	return found
}
