// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
)

// The users of the tests.
const (
	anna       = "anna@example.org" // a member of the project
	replicaSet = "system:serviceaccount:kube-system:replicaset-controller"
	lifecycle  = "system:serviceaccount:sluice-system:lifecycle"
)

// admissionRequest is a request in a project's namespace, lab.
type admissionRequest struct {
	// user is anna if empty, resource is plural.group, with a subresource after a slash.
	user, resource string
	// groups of the user.
	groups []string
	// options of a deletion.
	options *metav1.DeleteOptions
	// old and object are YAML; old is empty at a creation, object at a deletion.
	old, object string
	// rights of the user: "verb resource.group".
	rights []string
	// queued is set if Kueue serves the project.
	queued bool
	// outside is set if the namespace is no project's.
	outside bool
	// parameters of the project; nil for those of a department without terms.
	parameters runtime.Object
}

// deny returns the messages with which the policies refuse a request, with the API server's own evaluation.
func (r *admissionRequest) deny(t *testing.T) (messages []string) {
	t.Helper()
	name, subresource, _ := strings.Cut(r.resource, "/")
	resource, group, _ := strings.Cut(name, ".")
	old, object := decodeObject(t, r.old), decodeObject(t, r.object)
	operation, present := admission.Create, object
	switch {
	case object == nil:
		operation, present = admission.Delete, old
	case old != nil:
		operation = admission.Update
	}
	requester := &user.DefaultInfo{Name: r.user, Groups: r.groups}
	if r.user == "" {
		requester.Name = anna
	}
	var options runtime.Object
	if r.options != nil {
		options = r.options
	}
	attributes := &admission.VersionedAttributes{VersionedKind: present.GroupVersionKind()}
	attributes.Attributes = admission.NewAttributesRecord(asObject(object), asObject(old), present.GroupVersionKind(), "lab", present.GetName(),
		schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, subresource, operation, options, false, requester)
	attributes.VersionedObject.Set(asObject(object))
	attributes.VersionedOldObject.Set(asObject(old))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.LabelProject: "lab", v1alpha1.LabelDepartment: "physics"}}}
	if r.outside {
		namespace.Labels = nil
	}
	if r.queued {
		namespace.Labels[v1alpha1.LabelQueued] = "true"
	}
	for _, p := range compiledPolicies(t) {
		if p.outside != r.outside || !p.matches(group, r.resource, operation) {
			continue
		}
		parameters := runtime.Object(admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}))
		if kind := p.Spec.ParamKind; kind != nil && kind.Kind != "AdmissionParameters" {
			if parameters = r.parameters; parameters == nil {
				parameters = &v1alpha1.ProjectParameters{Spec: v1alpha1.ProjectParametersSpec{
					Services: v1alpha1.ServiceTerms{Types: []v1alpha1.ServiceType{"ClusterIP"}},
				}}
			}
		}
		result := p.validator.Validate(t.Context(), attributes.GetResource(), attributes, parameters, namespace,
			celconfig.RuntimeCELCostBudget, rights(r.rights))
		for _, decision := range result.Decisions {
			if decision.Evaluation == validating.EvalError {
				t.Errorf("%s: %s", p.Name, decision.Message)
			}
			if decision.Action == validating.ActionDeny {
				messages = append(messages, p.Name+": "+decision.Message)
			}
		}
	}
	return messages
}

func decodeObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetNamespace("lab")
	return object
}

// asObject returns nil for nil, which the interface would hide.
func asObject(object *unstructured.Unstructured) runtime.Object {
	if object == nil {
		return nil
	}
	return object
}

// rights authorizes "verb resource.group".
type rights []string

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, a.GetVerb()+" "+a.GetResource()+"."+a.GetAPIGroup()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// compiledPolicy is a policy of projects, or of all namespaces outside, compiled as the API server does.
type compiledPolicy struct {
	*admissionv1.ValidatingAdmissionPolicy
	outside   bool
	validator validating.Validator
}

// matches reports whether the policy's rules match a request.
func (p *compiledPolicy) matches(group, resource string, operation admission.Operation) bool {
	resource = strings.Replace(resource, "."+group, "", 1)
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Operations, admissionv1.OperationType(operation))
	})
}

// compiledPolicies returns the policies of projects and those outside. They are compiled once for all tests.
func compiledPolicies(t *testing.T) []compiledPolicy {
	t.Helper()
	compiled.Do(func() {
		for _, p := range loadSet(t, false).policies {
			selector := p.Spec.MatchConstraints.NamespaceSelector
			if selector == nil || len(selector.MatchExpressions) == 0 || selector.MatchExpressions[0].Key != v1alpha1.LabelProject {
				continue
			}
			outside := selector.MatchExpressions[0].Operator == metav1.LabelSelectorOpDoesNotExist
			compiled.policies = append(compiled.policies, compiledPolicy{p, outside, compilePolicy(t, p)})
		}
	})
	return compiled.policies
}

var compiled struct {
	sync.Once
	policies []compiledPolicy
}

// compilePolicy does what the API server does with a policy: validating.compilePolicy.
func compilePolicy(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	variables := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	messageVariables := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	var named []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		named = append(named, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(named, variables, environment.StoredExpressions)
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, variables, environment.StoredExpressions),
			p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	return validating.NewValidator(compiler.CompileCondition(validations, variables, environment.StoredExpressions), matcher,
		compiler.CompileCondition(nil, variables, environment.StoredExpressions),
		compiler.CompileCondition(messages, messageVariables, environment.StoredExpressions), p.Spec.FailurePolicy, nil)
}
