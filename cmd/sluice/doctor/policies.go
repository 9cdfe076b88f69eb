// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// checkPolicies checks that each policy compiles, is evaluated, and takes no longer than it may.
func checkPolicies(o *Observation) (out outcome) {
	if reason := firstUnread(o.Policies); reason != "" {
		return skip("%s", reason)
	}
	if len(o.Policies.Value) == 0 {
		out.add(Error, "", "there are no Policies: lifecycle has not written the mirrors of the built-in ones", "see the check lifecycle")
	}
	for i := range o.Policies.Value {
		policy := &o.Policies.Value[i]
		object, conditions := "Policy "+policy.Name, policy.Status.Conditions
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionCompiled); c != nil && c.Status == metav1.ConditionFalse {
			inForce := "no version of it is in force"
			if policy.Status.EnforcedGeneration > 0 {
				inForce = fmt.Sprintf("generation %d stays in force", policy.Status.EnforcedGeneration)
			}
			out.add(Error, object, fmt.Sprintf("it does not compile (%s), and %s", compileError(policy, c), inForce),
				"correct it, and test it with: sluice policy check FILE")
		}
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionTimedOut); c != nil && c.Status == metav1.ConditionTrue {
			out.add(Warning, object, c.Message, "make it cheaper (docs/platform/policies.md), if the objects are not unusually large")
		}
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonDataMissing {
			out.add(Error, object, c.Message, "correct spec.policyData of the AdmissionParameters, or the ConfigMap (docs/platform/policy-data.md)")
		}
		if policy.Status.ObservedGeneration != policy.Generation {
			out.add(Warning, object, "lifecycle has not observed its current spec", "see the check lifecycle; if it was just changed, try again")
		}
	}
	out.ok = fmt.Sprintf("%d policies compile and are in force", len(o.Policies.Value))
	return out
}

// compileError returns the first error of a policy with its line, or the message of the condition.
func compileError(policy *v1alpha1.Policy, condition *metav1.Condition) string {
	if len(policy.Status.Errors) == 0 {
		return condition.Message
	}
	first := policy.Status.Errors[0]
	return fmt.Sprintf("line %d: %s", first.Line, first.Message)
}

// checkPolicyMatches finds policies whose match selects no project. Whether another policy was ever evaluated is not
// counted, so that the check never succeeds.
func checkPolicyMatches(o *Observation) (out outcome) {
	if reason := firstUnread(o.Policies, o.Projects, o.Departments); reason != "" {
		return skip("%s", reason)
	}
	var departments, projects, quiet []string
	for i := range o.Departments.Value {
		departments = append(departments, o.Departments.Value[i].Name)
	}
	for i := range o.Projects.Value {
		projects = append(projects, o.Projects.Value[i].Name)
	}
	isNone := func(named, existing []string) bool {
		return len(named) > 0 && !slices.ContainsFunc(named, func(name string) bool { return slices.Contains(existing, name) })
	}
	for i := range o.Policies.Value {
		policy := &o.Policies.Value[i]
		if policy.Labels[v1alpha1.LabelBuiltIn] == "true" || policy.Spec.Type == v1alpha1.PolicyTypeLibrary {
			continue
		}
		match, object := policy.Spec.Match, "Policy "+policy.Name
		const correct = "correct the names, or delete the policy"
		switch {
		case isNone(match.Departments, departments):
			out.add(Warning, object, "it matches nothing: spec.match.departments names no existing Department: "+listFields(slices.Clone(match.Departments)), correct)
		case isNone(match.Projects, projects):
			out.add(Warning, object, "it matches nothing: spec.match.projects names no existing Project: "+listFields(slices.Clone(match.Projects)), correct)
		case policy.Status.Violations == 0:
			quiet = append(quiet, policy.Name)
		}
	}
	text := "violations of policies are counted, and evaluations are not, so that a policy that never matched is not known"
	if len(quiet) > 0 {
		text += "; without a violation so far: " + listFields(quiet)
	}
	out.skipped = text
	return out
}

const restorePolicies = "lifecycle applies and restores them: see the check lifecycle"

// checkAdmissionPolicies compares the ValidatingAdmissionPolicies and their bindings with those of this version.
func checkAdmissionPolicies(o *Observation) (out outcome) {
	if reason := firstUnread(o.AdmissionPolicies, o.AdmissionBindings, o.Parameters); reason != "" {
		return skip("%s", reason)
	}
	if o.Parameters.Value == nil {
		out.add(Error, "AdmissionParameters "+v1alpha1.AdmissionParametersName,
			"it does not exist: the API server refuses what the policies cover in projects", restorePolicies)
	}
	policies := map[string]*admissionv1.ValidatingAdmissionPolicy{}
	for i := range o.AdmissionPolicies.Value {
		policies[o.AdmissionPolicies.Value[i].Name] = &o.AdmissionPolicies.Value[i]
	}
	for i := range o.ExpectedAdmissionPolicies {
		want := &o.ExpectedAdmissionPolicies[i]
		object := "ValidatingAdmissionPolicy " + want.Name
		have := policies[want.Name]
		switch {
		case have == nil:
			out.add(Error, object, "it does not exist", restorePolicies)
		case !reflect.DeepEqual(want.Spec.Validations, have.Spec.Validations), !reflect.DeepEqual(want.Spec.Variables, have.Spec.Variables),
			!reflect.DeepEqual(want.Spec.MatchConditions, have.Spec.MatchConditions):
			out.add(Warning, object, "its expressions are not those of this version", restorePolicies+"; versions may differ during an upgrade")
		}
	}
	bindings := map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}
	for i := range o.AdmissionBindings.Value {
		bindings[o.AdmissionBindings.Value[i].Name] = &o.AdmissionBindings.Value[i]
	}
	for i := range o.ExpectedAdmissionBindings {
		want := &o.ExpectedAdmissionBindings[i]
		object := "ValidatingAdmissionPolicyBinding " + want.Name
		have := bindings[want.Name]
		switch {
		case have == nil:
			out.add(Error, object, "it does not exist, so that nothing enforces policy "+want.Spec.PolicyName, restorePolicies)
		case slices.Contains(want.Spec.ValidationActions, admissionv1.Deny) && !slices.Contains(have.Spec.ValidationActions, admissionv1.Deny):
			out.add(Error, object, fmt.Sprintf("it does not deny: its validationActions are %v", have.Spec.ValidationActions), restorePolicies)
		}
	}
	outside := "warns of"
	if o.deniesOutside() {
		outside = "refuses"
	}
	out.ok = fmt.Sprintf("%d policies are bound; the API server %s GPU pods outside of projects", len(o.ExpectedAdmissionPolicies), outside)
	return out
}

// outsidePolicy refuses or warns of GPU pods outside projects.
const outsidePolicy = "sluice-gpu-pods"

// deniesOutside reports whether GPU pods outside projects are refused.
func (o *Observation) deniesOutside() bool {
	for i := range o.AdmissionBindings.Value {
		if b := &o.AdmissionBindings.Value[i]; b.Name == outsidePolicy {
			return slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		}
	}
	return false
}

// checkAdmissionEnforced evaluates the response to a GPU pod in the namespace default, which the API server itself
// refuses or warns of.
func checkAdmissionEnforced(o *Observation) (out outcome) {
	probe := o.OutsideProbe
	message := errorText(probe.Err)
	isNamed := func(text string) bool { return strings.Contains(text, "'"+outsidePolicy+"'") }
	switch {
	case !probe.Made:
		return skip("no request was made")
	case slices.Contains(o.parameters().ExemptNamespaces, metav1.NamespaceDefault):
		return skip("the namespace default is exempt, so that a GPU pod there shows nothing")
	case isNamed(message):
		out.ok = "the API server refused a GPU pod outside of projects"
	case probe.Err == nil && slices.ContainsFunc(probe.Warnings, isNamed):
		out.ok = "the API server warned of a GPU pod outside of projects"
	case probe.Err == nil:
		out.add(Error, "", "the API server neither refused a GPU pod outside of projects nor warned of it: it does not evaluate Sluice's admission policies",
			"see the check admission-policies, and whether the API server disables the plugin ValidatingAdmissionPolicy (--disable-admission-plugins)")
	case apierrors.IsForbidden(probe.Err) && !strings.Contains(message, "ValidatingAdmissionPolicy"):
		return skip("no right to create pods in the namespace default (kubectl auth can-i create pods -n default), which no role of Sluice grants; " +
			"the request is a dry run")
	default:
		return skip("the request was refused for another reason: %s", message)
	}
	return out
}

// conditionProblem is a condition of a Project or Department that is a problem while it has the status.
type conditionProblem struct {
	kind   string
	status metav1.ConditionStatus
	result Result
}

var (
	projectProblems = []conditionProblem{
		{v1alpha1.ConditionReady, metav1.ConditionFalse, Error},
		{v1alpha1.ConditionQueueApplied, metav1.ConditionFalse, Error},
		{v1alpha1.ConditionMembersBound, metav1.ConditionFalse, Warning},
		{v1alpha1.ConditionUsageDiffers, metav1.ConditionTrue, Warning},
		{v1alpha1.ConditionOtherQuotas, metav1.ConditionTrue, Warning},
		{v1alpha1.ConditionLimitExceeded, metav1.ConditionTrue, Warning},
		{v1alpha1.ConditionExpiryBlocked, metav1.ConditionTrue, Warning},
	}
	departmentProblems = []conditionProblem{
		{v1alpha1.ConditionReady, metav1.ConditionFalse, Error},
		{v1alpha1.ConditionQueueApplied, metav1.ConditionFalse, Error},
		{v1alpha1.ConditionMembersBound, metav1.ConditionFalse, Warning},
		{v1alpha1.ConditionLimitExceeded, metav1.ConditionTrue, Warning},
		{v1alpha1.ConditionOversubscribed, metav1.ConditionTrue, Warning},
	}
)

// checkProjects presents what lifecycle found about departments and projects.
func checkProjects(o *Observation) (out outcome) {
	if reason := firstUnread(o.Projects, o.Departments); reason != "" {
		return skip("%s", reason)
	}
	addAll := func(object, command string, conditions []metav1.Condition, problems []conditionProblem) {
		for _, problem := range problems {
			c := meta.FindStatusCondition(conditions, problem.kind)
			if c == nil || c.Status != problem.status || c.Reason == v1alpha1.ReasonAllowed {
				continue
			}
			result := problem.result
			if c.Reason == v1alpha1.ReasonProgressing {
				result = Warning
			}
			out.add(result, object, fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, cmp.Or(c.Message, "no message")), command)
		}
	}
	for i := range o.Departments.Value {
		d := &o.Departments.Value[i]
		addAll("Department "+d.Name, "kubectl describe sldept "+d.Name, d.Status.Conditions, departmentProblems)
	}
	for i := range o.Projects.Value {
		p := &o.Projects.Value[i]
		addAll("Project "+p.Name, "kubectl describe slproj "+p.Name, p.Status.Conditions, projectProblems)
	}
	out.ok = fmt.Sprintf("%d projects in %d departments are ready", len(o.Projects.Value), len(o.Departments.Value))
	return out
}
