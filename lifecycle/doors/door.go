// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// where is in which namespaces a door is shut.
type where int

const (
	// everywhere: in all namespaces.
	everywhere where = iota
	// governed: in projects' namespaces.
	governed
	// ungoverned: in those that are neither a project's nor exempt.
	ungoverned
)

// door is one way round, and how it is shut.
type door struct {
	// name of the policy and its binding, behind "sluice-".
	name string
	// where it is shut.
	where where
	// mayWarn: it only warns where the settings do not say Deny.
	mayWarn bool
	// rules are what passes through it.
	rules []admissionv1.NamedRuleWithOperations
	// when narrows the rules by CEL; all of them must hold.
	when []string
	// variables are CEL expressions that the checks share, by name.
	variables []admissionv1.Variable
	// checks must all hold.
	checks []check
}

// check is a condition and what is said where it does not hold.
type check struct {
	// expression is CEL.
	expression string
	// message is CEL too: what was asked, and what to do.
	message string
}

// policy is the door as the API server knows it.
func (d door) policy(common []admissionv1.Variable) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: d.meta(),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy:       ptr.To(admissionv1.Equivalent),
				NamespaceSelector: d.where.selector(),
				ResourceRules:     d.rules,
			},
			Variables: slices.Concat(common, d.variables),
		},
	}
	for _, expression := range d.when {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "when", Expression: expression})
	}
	for _, c := range d.checks {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{
			Expression: c.expression, MessageExpression: c.message, Reason: ptr.To(metav1.StatusReasonForbidden),
		})
	}
	return p
}

// binding puts the policy in force.
func (d door) binding(actions ...admissionv1.ValidationAction) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: d.meta(),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        d.meta().Name,
			ValidationActions: actions,
		},
	}
}

func (d door) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "sluice-" + d.name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}}
}

func (w where) selector() *metav1.LabelSelector {
	project := metav1.LabelSelectorRequirement{Key: v1alpha1.LabelProject, Operator: metav1.LabelSelectorOpExists}
	switch w {
	case governed:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{project}}
	case ungoverned:
		project.Operator = metav1.LabelSelectorOpDoesNotExist
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{project, {
			// The API server sets this label itself; another can be forged.
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: tenancy.ExemptNamespaces(),
		}}}
	default:
		return &metav1.LabelSelector{}
	}
}

// on is a rule for resources of Kubernetes' core group.
func on(operations []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
	return in("", operations, resources...)
}

// in is a rule for resources of a group, in whichever version they are written.
func in(group string, operations []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
	}}
}

func rules(list ...admissionv1.NamedRuleWithOperations) []admissionv1.NamedRuleWithOperations {
	return list
}

// The operations that doors are about.
var (
	creating         = []admissionv1.OperationType{admissionv1.Create}
	deleting         = []admissionv1.OperationType{admissionv1.Delete}
	updating         = []admissionv1.OperationType{admissionv1.Update}
	creatingUpdating = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	updatingDeleting = []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete}
	writing          = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
)
