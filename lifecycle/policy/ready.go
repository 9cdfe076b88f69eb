// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
	"sluice.dev/policies/parameters"
)

// The reasons why a policy is not asked as its object says.
const (
	reasonReplaced          = "Replaced"
	reasonInvalidParameters = "InvalidParameters"
)

// ready tells whether pods are judged by the policy as its object shows it.
func ready(report engine.Report, standIns []live.StandIn) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonReady, Message: "in force",
	}
	not := func(reason, message string) metav1.Condition {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
		return condition
	}
	switch source, set := ofSource(report), ofParameters(report); {
	case len(source) > 0:
		return not(v1alpha1.ReasonCompileError, first(source)+"; "+meanwhile(report))
	case len(set) > 0:
		stay := "the parameters as shipped are in force"
		if report.EnforcedGeneration > 0 {
			stay = fmt.Sprintf("the parameters of generation %d stay in force", report.EnforcedGeneration)
		}
		return not(reasonInvalidParameters, first(set)+"; "+stay)
	}
	var parts []string
	for _, standIn := range standIns {
		if standIn.Everywhere() {
			return not(reasonReplaced, fmt.Sprintf("policy %s stands in its place (spec.replaces); pods are not judged by this one", standIn.Policy))
		}
		parts = append(parts, partly(standIn))
	}
	if len(parts) > 0 {
		condition.Reason = reasonReplaced
		condition.Message = "in force, but " + strings.Join(parts, ", and ")
	}
	return condition
}

// partly says for whom a policy stands in this one's place.
func partly(standIn live.StandIn) string {
	var whose []string
	if len(standIn.Departments) > 0 {
		whose = append(whose, "of departments "+strings.Join(standIn.Departments, ", "))
	}
	if len(standIn.Projects) > 0 {
		whose = append(whose, "of projects "+strings.Join(standIn.Projects, ", "))
	}
	return fmt.Sprintf("policy %s stands in its place (spec.replaces) for pods %s", standIn.Policy, strings.Join(whose, " and "))
}

// ofSource and ofParameters are the problems of a report by what is wrong: the
// Rego, or what is set of a built-in policy.
func ofSource(report engine.Report) []engine.Problem     { return problems(report, false) }
func ofParameters(report engine.Report) []engine.Problem { return problems(report, true) }

func problems(report engine.Report, ofParameters bool) []engine.Problem {
	var found []engine.Problem
	for _, problem := range report.Problems {
		if strings.HasPrefix(problem.Message, parameters.Field) == ofParameters {
			found = append(found, problem)
		}
	}
	return found
}
