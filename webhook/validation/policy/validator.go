// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy validates new and changed Policies: it refuses those that could not be in
// force, and warns of probable errors.
//
// Package check checks the policy, in a child process. It evaluates example objects by the policy and
// those in force together, and warns of conflicts. For the mirror of a built-in policy only the
// parameters are validated, since nothing else of it is used.
//
// A refusal only informs the author sooner. The store of every component compiles policies with
// the same limits before it uses them, and keeps the last good version. So the webhook may be
// down: its failurePolicy is Ignore.
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// Checker checks a policy; [check.Process] implements it.
type Checker interface {
	Check(ctx context.Context, source engine.Source, environment check.Environment) (check.Result, error)
}

// Validator validates Policies.
type Validator struct {
	// Cached reads Projects, Departments, NodePools and Policies.
	Cached client.Reader
	// Checker checks the policies.
	Checker Checker
	// Clock is policy time, for the ends of exemptions. Without a clock they are not limited.
	Clock policytime.Clock
	// Policies has the data that policies read; nil without data.
	Policies *engine.Engine
}

var _ admission.Validator[*v1alpha1.Policy] = (*Validator)(nil)

// Handler returns the admission handler of the validator.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, policy *v1alpha1.Policy) (admission.Warnings, error) {
	return v.validate(ctx, nil, policy)
}

// ValidateUpdate implements admission.Validator. An update that does not change what is in force
// is valid, so that a policy of an earlier version can be labeled and deleted.
func (v *Validator) ValidateUpdate(ctx context.Context, before, policy *v1alpha1.Policy) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(before.Spec, policy.Spec) && isLabeledBuiltIn(before) == isLabeledBuiltIn(policy) {
		return nil, nil
	}
	return v.validate(ctx, before, policy)
}

// validate validates a policy; before is nil for a new one.
func (v *Validator) validate(ctx context.Context, before, policy *v1alpha1.Policy) (admission.Warnings, error) {
	builtIn, labeled := slices.Contains(policies.Names(), policy.Name), isLabeledBuiltIn(policy)
	switch {
	case builtIn && labeled:
		return nil, invalid(policy, parameterErrors(policy))
	case builtIn:
		return nil, invalid(policy, field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"),
			"a built-in policy has this name; choose another name")})
	case labeled:
		return nil, invalid(policy, field.ErrorList{field.Forbidden(field.NewPath("metadata", "labels").Key(v1alpha1.LabelBuiltIn),
			"the label is Sluice's, and no built-in policy has this name; remove the label")})
	}
	if errs := v.exemptionErrors(before, policy); len(errs) > 0 {
		return nil, invalid(policy, errs)
	}
	timeout, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	source := engine.FromPolicy(policy)
	v.awaitLibraries(timeout, source)
	warnings := v.exemptionWarnings(policy)
	environment, err := v.environment(ctx, policy)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("conflicts with other policies were not looked for: %v", err))
	}
	result, err := v.Checker.Check(timeout, source, environment)
	if err != nil {
		// The webhook fails open; this answer has the same effect, and names the reason.
		return admission.Warnings{fmt.Sprintf("the policy was not checked: %v; see its status", err)}, nil
	}
	for _, warning := range result.Warnings {
		warnings = append(warnings, describe(warning))
	}
	if len(result.Problems) > 0 {
		return warnings, invalid(policy, problemErrors(result.Problems))
	}
	warnings = append(warnings, v.dataWarnings(&result)...)
	unknown, err := v.matchWarnings(ctx, policy)
	return append(warnings, unknown...), err
}

// dataWarnings warns of data that the policy reads and that does not exist. It may be created later.
func (v *Validator) dataWarnings(result *check.Result) admission.Warnings {
	if v.Policies == nil {
		return nil
	}
	var warnings admission.Warnings
	for _, missing := range v.Policies.Data().Missing(result.Reads) {
		warnings = append(warnings, missing+"; until then the policy fails, and in Deny refuses every object that it matches")
		if len(warnings) == maxMatchWarnings {
			return append(warnings, "data: further names were not looked up")
		}
	}
	return warnings
}

// namedObjects are names in a field of the spec.
type namedObjects struct {
	field, kind string
	names       []string
	object      func() client.Object
}

// matchWarnings warns of names in the match and in the exemptions that do not exist. They may be created later.
func (v *Validator) matchWarnings(ctx context.Context, policy *v1alpha1.Policy) (admission.Warnings, error) {
	var warnings admission.Warnings
	lists := []namedObjects{
		{"match.projects", "project", policy.Spec.Match.Projects, newProject},
		{"match.departments", "department", policy.Spec.Match.Departments, newDepartment},
		{"match.exclude.projects", "project", policy.Spec.Match.Exclude.Projects, newProject},
		{"match.exclude.departments", "department", policy.Spec.Match.Exclude.Departments, newDepartment},
	}
	for i, exemption := range policy.Spec.Exemptions {
		lists = append(lists, namedObjects{fmt.Sprintf("exemptions[%d].projects", i), "project", exemption.Projects, newProject})
	}
	for _, list := range lists {
		for i, name := range list.names {
			switch err := v.Cached.Get(ctx, types.NamespacedName{Name: name}, list.object()); {
			case apierrors.IsNotFound(err):
				warnings = append(warnings, fmt.Sprintf("spec.%s[%d]: there is no %s %s", list.field, i, list.kind, name))
			case err != nil:
				return warnings, fmt.Errorf("get %s %s: %w", list.kind, name, err)
			}
			if len(warnings) == maxMatchWarnings {
				return append(warnings, "spec.match: further names were not looked up"), nil
			}
		}
	}
	return warnings, nil
}

func newProject() client.Object { return &v1alpha1.Project{} }

func newDepartment() client.Object { return &v1alpha1.Department{} }

// checkTimeout is the time limit of a check and of the wait for earlier checks. It is below the
// timeout of the webhook's registration.
const checkTimeout = 8 * time.Second

// maxMatchWarnings limits the warnings about names. The API server truncates long lists.
const maxMatchWarnings = 10

func isLabeledBuiltIn(policy *v1alpha1.Policy) bool {
	return policy.Labels[v1alpha1.LabelBuiltIn] == "true"
}

// parameterErrors returns the errors of a mirror's parameters, and of a schema, which would have
// no effect.
func parameterErrors(policy *v1alpha1.Policy) field.ErrorList {
	if len(policy.Spec.Exemptions) > 0 {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "exemptions"), "no object is exempted from a built-in policy")}
	}
	if policy.Spec.ParametersSchema != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "parametersSchema"), "Sluice knows the parameters of a built-in policy")}
	}
	if policy.Spec.Parameters == nil || len(policy.Spec.Parameters.Raw) == 0 {
		return nil
	}
	var errs field.ErrorList
	for _, fault := range policies.ValidateParameters(policy.Name, policy.Spec.Parameters.Raw) {
		// The fault begins with the path, as a field.Error does.
		path, detail, _ := strings.Cut(fault, ": Invalid value: ")
		errs = append(errs, newError(path, detail))
	}
	return errs
}

// problemErrors returns the errors of a checked policy. The path of an error in the source ends
// with its line and column.
func problemErrors(problems []engine.Problem) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		switch path, detail, _ := strings.Cut(problem.Message, " "); {
		case problem.Library != "":
			errs = append(errs, newError("spec.rego", describe(problem)))
		case problem.Line > 0:
			errs = append(errs, newError(fmt.Sprintf("spec.rego:%d:%d", problem.Line, problem.Column), problem.Message))
		case strings.HasPrefix(path, "spec."):
			errs = append(errs, newError(strings.TrimSuffix(path, ":"), detail))
		default:
			errs = append(errs, newError("spec", problem.Message))
		}
	}
	return errs
}

func newError(path, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{}, Detail: detail}
}

// describe returns a problem with its place, without the policy's name.
func describe(problem engine.Problem) string {
	problem.Policy = "spec.rego"
	if problem.Line == 0 && problem.Library == "" {
		return problem.Message
	}
	return problem.Error()
}

var policyKind = schema.GroupKind{Group: v1alpha1.Group, Kind: "Policy"}

// invalid returns the error for the API server; nil without errors.
func invalid(policy *v1alpha1.Policy, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(policyKind, policy.Name, errs)
}
