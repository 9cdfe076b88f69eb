// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extension validates new Extensions and the decisions on them, and records who requested and who decided.
//
// [Defaulter] patches the requester (sluice.dev/created-by), the approver and the time of the decision, which users
// cannot set themselves. [Validator] checks a new Extension against the workload's clock and the department's terms, the
// renewal of a project against its owners, its phase and its other renewals, and a decision against the approvers' roles.
// It denies users the request of a project's deletion, and a decision on another such request than the project's own.
//
// The package never grants an Extension, and never repeats the checks of the schema. It is not registered for the
// writes of lifecycle, which continue while the webhook is down.
package extension

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/validation"
)

// Validator validates new Extensions, and decisions on them.
type Validator struct {
	// Cached reads Projects (by evaluation.ProjectNamespaceIndex), Departments and
	// WorkloadClocks.
	Cached client.Reader
	// Live lists the Extensions of a namespace. They are created too rarely for a cache.
	Live client.Reader
	// Authorizer checks who administers departments.
	Authorizer validation.DepartmentAuthorizer
	// Clock is policy time.
	Clock policytime.Clock
}

var _ admission.Validator[*v1alpha1.Extension] = (*Validator)(nil)

// Handler returns the admission handler of the validator.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, err
	}
	state, err := v.readClusterState(ctx, request.Namespace, extension)
	if err != nil {
		return nil, err
	}
	if state.tenant == nil {
		return nil, newNoProjectError(extension, request.Namespace)
	}
	if user := extension.Annotations[v1alpha1.AnnotationCreatedBy]; user != request.UserInfo.Username {
		return nil, newForbiddenError(extension, "metadata.annotations[%s] must name the requester, %s, not %q",
			v1alpha1.AnnotationCreatedBy, request.UserInfo.Username, user)
	}
	if errs := validateDeletionRequest(extension); len(errs) > 0 {
		return nil, apierrors.NewInvalid(extensionKind, extension.Name, errs)
	}
	if err := v.validateDailyNumber(request.UserInfo, extension, &state); err != nil {
		return nil, err
	}
	if extension.Spec.Action == v1alpha1.ActionRenew {
		return v.validateRenewal(ctx, request.UserInfo, extension, &state)
	}
	if err := v.validateNumber(ctx, request.UserInfo, extension, &state); err != nil {
		return nil, err
	}
	warnings, errs := validateRequest(extension, &state)
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(extensionKind, extension.Name, errs)
	}
	return warnings, v.validatePerson(ctx, request.UserInfo, extension, &state)
}

// ValidateUpdate implements admission.Validator. It validates decisions; the schema validates other changes.
func (v *Validator) ValidateUpdate(ctx context.Context, before, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || request.SubResource != statusSubresource {
		return nil, err
	}
	change := classifyChange(&before.Status, &extension.Status)
	if change == statusUnchanged {
		return nil, nil
	}
	tenant, err := resolveTenant(ctx, v.Cached, request.Namespace)
	if err != nil {
		return nil, err
	}
	if tenant == nil {
		return nil, newNoProjectError(extension, request.Namespace)
	}
	action := before.Spec.Action
	allowed, err := v.isApprover(ctx, request.UserInfo, tenant, action)
	switch {
	case err != nil:
		return nil, err
	case !allowed:
		return nil, newForbiddenError(extension, "%s cannot decide on it; %s can", request.UserInfo.Username, tenant.describeApprovers(action))
	case change == statusAlreadyDecided:
		return nil, newForbiddenError(extension, "it was already decided (%s), and a decision is final; create a new extension instead",
			before.Status.Decision)
	case change == protectedFieldChanged:
		return nil, newForbiddenError(extension, "status: an approver writes only the decision and the message, and until which day "+
			"the deletion of a project is dismissed; Sluice writes the other fields")
	case change == decisionMissing:
		return nil, newForbiddenError(extension, "status.decision: must be %s or %s", v1alpha1.ExtensionApproved, v1alpha1.ExtensionDenied)
	case extension.Status.DecidedBy != request.UserInfo.Username:
		return nil, newForbiddenError(extension, "status.decidedBy must name the approver, %s, not %q",
			request.UserInfo.Username, extension.Status.DecidedBy)
	}
	if action == v1alpha1.ActionDelete {
		return nil, v.validateDeletionDecision(extension, tenant)
	}
	// Extensions from before the rules on targets exist, and an approver may not know every project.
	if errs := validateTarget(before, tenant.project); extension.Status.Decision == v1alpha1.ExtensionApproved && len(errs) > 0 {
		return nil, newForbiddenError(extension, "it cannot be approved: %w; deny it", errs.ToAggregate())
	}
	return nil, nil
}

// ValidateDelete implements admission.Validator. The admission policy sluice-own-extensions restricts deletions, so
// that a namespace can be deleted while the webhook is down.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Extension) (admission.Warnings, error) {
	return nil, nil
}

func (v *Validator) readClusterState(
	ctx context.Context, namespace string, extension *v1alpha1.Extension,
) (state clusterState, err error) {
	if state.tenant, err = resolveTenant(ctx, v.Cached, namespace); state.tenant == nil || err != nil {
		return state, err
	}
	var all v1alpha1.ExtensionList
	if err := v.Live.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return state, fmt.Errorf("list extensions in namespace %s: %w", namespace, err)
	}
	requester := extension.Annotations[v1alpha1.AnnotationCreatedBy]
	for i := range all.Items {
		other := &all.Items[i]
		if other.Spec.Action == v1alpha1.ActionRenew && other.IsPending() && validateTarget(other, state.tenant.project) == nil {
			state.pendingRenewal = other
		}
		if other.Status.Decision == "" {
			state.pending++
			if other.Annotations[v1alpha1.AnnotationCreatedBy] == requester {
				state.pendingOfUser++
			}
		}
	}
	if extension.Spec.Action != v1alpha1.ActionExtend {
		return state, nil
	}
	target := extension.Spec.Target
	name := v1alpha1.WorkloadClockName(schema.FromAPIVersionAndKind(target.APIVersion, "").Group, target.Kind, target.Name)
	var clock v1alpha1.WorkloadClock
	switch err := v.Cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &clock); {
	case err == nil:
		state.clock = &clock
	case !apierrors.IsNotFound(err):
		return state, fmt.Errorf("get clock %s/%s: %w", namespace, name, err)
	}
	return state, nil
}

var (
	extensionKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Extension"}
	extensionResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "extensions"}
)

func newForbiddenError(extension *v1alpha1.Extension, format string, args ...any) error {
	return apierrors.NewForbidden(extensionResource, extension.Name, fmt.Errorf(format, args...))
}

func newNoProjectError(extension *v1alpha1.Extension, namespace string) error {
	return newForbiddenError(extension, "no project owns namespace %s, so no workload there has a time limit; "+
		"create extensions in a project's namespace", namespace)
}

// namespaceTenant is the project that owns a namespace, and its department. They must not be modified.
type namespaceTenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// resolveTenant returns the tenant of a namespace; nil if no project owns it.
func resolveTenant(ctx context.Context, cached client.Reader, namespace string) (*namespaceTenant, error) {
	project, department, err := evaluation.GetProject(ctx, cached, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	return &namespaceTenant{project: project, department: department}, nil
}

// timeZone returns the time zone of the department's days; UTC if it is unknown.
func (t *namespaceTenant) timeZone() *time.Location {
	zone, err := time.LoadLocation(t.department.Spec.Notices.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}
