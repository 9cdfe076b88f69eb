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
	// maxErrors is the most errors in a status.
	maxErrors = 20
	// maxWarnings is the most warnings in a condition's message; it counts the others.
	maxWarnings = 5
)

// BuildStatus returns a policy's status after the engine's report on its present
// generation, with the policies that replace it. A condition that did not change
// keeps its transition time.
func BuildStatus(object *v1alpha1.Policy, report engine.Report, replacements []store.Replacement, now metav1.Time) v1alpha1.PolicyStatus {
	status := *object.Status.DeepCopy()
	status.ObservedGeneration = report.Generation
	status.EnforcedGeneration = report.EnforcedGeneration
	status.Errors = nil
	for _, problem := range report.Problems[:min(len(report.Problems), maxErrors)] {
		status.Errors = append(status.Errors, problem.Status())
	}
	isLibrary := object.Spec.Type == v1alpha1.PolicyTypeLibrary
	conditions := []metav1.Condition{compiledCondition(report, isLibrary), readyCondition(object, report, replacements)}
	if report.Active && !isLibrary {
		conditions = append(conditions, enforcedCondition(report))
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEnforced)
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = report.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func compiledCondition(report engine.Report, isLibrary bool) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonCompiled, Message: "compiled and in force",
	}
	if problems := sourceProblems(report); len(problems) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Reason = v1alpha1.ReasonCompileError
		condition.Message = summarizeProblems(problems) + "; " + enforcedVersion(report, isLibrary)
	}
	condition.Message += formatWarnings(report.Warnings)
	return condition
}

// enforcedCondition says which generation the webhook evaluates.
func enforcedCondition(report engine.Report) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEnforced,
		Message: fmt.Sprintf("generation %d is in force: in each replica of the webhook within two seconds", report.EnforcedGeneration),
	}
	if report.EnforcedGeneration != report.Generation {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonFormerGeneration
		condition.Message = enforcedVersion(report, false)
	}
	return condition
}

// summarizeProblems returns the first problem and the number of the others.
func summarizeProblems(problems []engine.Problem) string {
	message := formatProblem(problems[0])
	if more := len(problems) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// enforcedVersion returns what is in force until the source is corrected.
func enforcedVersion(report engine.Report, isLibrary bool) string {
	switch {
	case isLibrary && !report.Active:
		return "no version of this library is in force, and no policy can import it"
	case report.Refusing:
		return "no version of this policy is in force, so all objects that it matches are refused: fix or delete it"
	case !report.Active:
		return "no version of this policy is in force, so it is skipped"
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
	message := "; warnings: " + strings.Join(texts, "; ")
	if more := len(all) - maxWarnings; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return message
}

// formatProblem returns a problem with its place in the policy.
func formatProblem(problem engine.Problem) string {
	shown := problem.Status()
	if shown.Line > 0 {
		return fmt.Sprintf("%d:%d: %s", shown.Line, shown.Column, shown.Message)
	}
	return shown.Message
}

// The reasons why a policy is not evaluated as its object shows it.
const (
	reasonReplaced          = "Replaced"
	reasonInvalidParameters = "InvalidParameters"
)

// readyCondition reports whether pods are evaluated by the policy as its object shows it.
func readyCondition(object *v1alpha1.Policy, report engine.Report, replacements []store.Replacement) metav1.Condition {
	isLibrary := object.Spec.Type == v1alpha1.PolicyTypeLibrary
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonReady, Message: "in force",
	}
	notReady := func(reason, message string) metav1.Condition {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
		return condition
	}
	switch source, set := sourceProblems(report), parameterProblems(report); {
	case len(source) > 0:
		return notReady(v1alpha1.ReasonCompileError, summarizeProblems(source)+"; "+enforcedVersion(report, isLibrary))
	case len(set) > 0:
		inForce := "the parameters as shipped are in force"
		if report.EnforcedGeneration > 0 {
			inForce = fmt.Sprintf("the parameters of generation %d stay in force", report.EnforcedGeneration)
		}
		return notReady(reasonInvalidParameters, summarizeProblems(set)+"; "+inForce)
	}
	if len(report.Missing) > 0 {
		return notReady(v1alpha1.ReasonDataMissing, strings.Join(report.Missing, "; ")+"; until then "+failureEffect(object))
	}
	var parts []string
	for _, replacement := range replacements {
		if replacement.IsUnscoped() {
			return notReady(reasonReplaced, fmt.Sprintf("policy %s replaces it (spec.replaces); pods are not evaluated by this one",
				replacement.Policy))
		}
		parts = append(parts, describeReplacement(replacement))
	}
	if len(parts) > 0 {
		condition.Reason = reasonReplaced
		condition.Message = "in force, but " + strings.Join(parts, ", and ")
	}
	return condition
}

// failureEffect returns what a policy does while it fails.
func failureEffect(object *v1alpha1.Policy) string {
	switch object.Spec.Enforcement {
	case v1alpha1.EnforcementDryRun:
		return "the policy is not evaluated"
	case v1alpha1.EnforcementWarn:
		if !engine.ChangesObjects(engine.FromPolicy(object)) {
			return "the policy warns of every object that it matches"
		}
	}
	return "the policy refuses every object that it matches"
}

// describeReplacement returns the pods for which a policy replaces this one.
func describeReplacement(replacement store.Replacement) string {
	var scopes []string
	if len(replacement.Departments) > 0 {
		scopes = append(scopes, "of departments "+strings.Join(replacement.Departments, ", "))
	}
	if len(replacement.Projects) > 0 {
		scopes = append(scopes, "of projects "+strings.Join(replacement.Projects, ", "))
	}
	text := fmt.Sprintf("policy %s replaces it (spec.replaces) for pods", replacement.Policy)
	if len(scopes) > 0 {
		text += " " + strings.Join(scopes, " and ")
	}
	if names := replacement.Exclude.Departments; len(names) > 0 {
		text += ", not of departments " + strings.Join(names, ", ")
	}
	if names := replacement.Exclude.Projects; len(names) > 0 {
		text += ", not of projects " + strings.Join(names, ", ")
	}
	return text
}

// sourceProblems returns the problems of a report with the Rego, parameterProblems those
// with the parameters of a built-in policy.
func sourceProblems(report engine.Report) []engine.Problem { return filterProblems(report, false) }

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
