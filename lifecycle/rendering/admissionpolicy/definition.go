// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// scope is in which namespaces a door is shut.
type scope int

const (
	// allNamespaces: in all namespaces.
	allNamespaces scope = iota
	// projectNamespaces: in projects' namespaces.
	projectNamespaces
	// otherNamespaces: in those that are neither a project's nor exempt.
	otherNamespaces
)

// definition is one way round, and how it is shut.
type definition struct {
	// name of the policy and its binding, behind "sluice-".
	name string
	// scope it is shut.
	scope scope
	// mayWarn: it only warns where the settings do not say Deny.
	mayWarn bool
	// rules are what passes through it.
	rules []admissionv1.NamedRuleWithOperations
	// matchConditions narrows the rules by CEL; all of them must hold.
	matchConditions []string
	// variables are CEL expressions that the checks share, by name.
	variables []admissionv1.Variable
	// validations must all hold.
	validations []validation
}

// validation is a condition and what is said where it does not hold.
type validation struct {
	// expression is CEL.
	expression string
	// message is CEL too: what was asked, and what to do.
	message string
}

// policy is the door as the API server knows it.
func (d definition) policy(common []admissionv1.Variable) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: d.objectMeta(),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy:       ptr.To(admissionv1.Equivalent),
				NamespaceSelector: d.scope.namespaceSelector(),
				ResourceRules:     d.rules,
			},
			Variables: slices.Concat(common, d.variables),
		},
	}
	for _, expression := range d.matchConditions {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "when", Expression: expression})
	}
	for _, c := range d.validations {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{
			Expression: c.expression, MessageExpression: c.message, Reason: ptr.To(metav1.StatusReasonForbidden),
		})
	}
	return p
}

// binding puts the policy in force.
func (d definition) binding(actions ...admissionv1.ValidationAction) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: d.objectMeta(),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        d.objectMeta().Name,
			ValidationActions: actions,
		},
	}
}

func (d definition) objectMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "sluice-" + d.name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}}
}

func (w scope) namespaceSelector() *metav1.LabelSelector {
	project := metav1.LabelSelectorRequirement{Key: v1alpha1.LabelProject, Operator: metav1.LabelSelectorOpExists}
	switch w {
	case projectNamespaces:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{project}}
	case otherNamespaces:
		project.Operator = metav1.LabelSelectorOpDoesNotExist
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{project, {
			// The API server sets this label itself; another can be forged.
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: tenancy.ExemptNamespaces(),
		}}}
	default:
		return &metav1.LabelSelector{}
	}
}

// coreRule is a rule for resources of Kubernetes' core group.
func coreRule(operations []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
	return groupRule("", operations, resources...)
}

// groupRule is a rule for resources of a group, in whichever version they are written.
func groupRule(group string, operations []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
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
	opsCreate       = []admissionv1.OperationType{admissionv1.Create}
	opsDelete       = []admissionv1.OperationType{admissionv1.Delete}
	opsUpdate       = []admissionv1.OperationType{admissionv1.Update}
	opsCreateUpdate = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	opsUpdateDelete = []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete}
	opsWrite        = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
)

// queuedKindRules are rules for the kinds that run to their end and wait in a queue. The
// status of Kubernetes' own is included: whoever may write it may write metadata
// with it. Kinds that a cluster does not have match nothing.
func queuedKindRules(operations []admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return rules(
		groupRule("batch", operations, "jobs", "jobs/status"),
		groupRule("jobset.x-k8s.io", operations, "jobsets"),
		groupRule("kubeflow.org", operations, "jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"),
		groupRule("trainer.kubeflow.org", operations, "trainjobs"),
		groupRule("ray.io", operations, "rayclusters", "rayjobs"),
	)
}

// workloadKindRules are rules for all kinds that make pods.
func workloadKindRules(operations []admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return append(queuedKindRules(operations),
		groupRule("batch", operations, "cronjobs", "cronjobs/status"),
		groupRule("apps", operations,
			"daemonsets", "daemonsets/status", "deployments", "deployments/status",
			"replicasets", "replicasets/status", "statefulsets", "statefulsets/status"),
		coreRule(operations, "replicationcontrollers", "replicationcontrollers/status"),
		groupRule("leaderworkerset.x-k8s.io", operations, "leaderworkersets"),
		groupRule("kubeflow.org", operations, "notebooks", "workspaces"),
		groupRule("ray.io", operations, "rayservices"),
		groupRule("sparkoperator.k8s.io", operations, "sparkapplications"),
		groupRule("workload.codeflare.dev", operations, "appwrappers"),
		groupRule("kueue.x-k8s.io", operations, "workloads"),
		groupRule("workspace.devfile.io", operations, "devworkspaces"),
		groupRule("argoproj.io", operations, "workflows"),
		groupRule("tekton.dev", operations, "pipelineruns", "taskruns"),
		groupRule("serving.kserve.io", operations, "inferenceservices"),
	)
}
