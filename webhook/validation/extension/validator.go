// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extensions judges Extensions: who asks for what, and who decides.
//
// Enters: an Extension that is made, or whose decision is written, with the user
// who does it; the project of its namespace, the department, and the clock of the
// workload. Leaves: an answer in words for whoever asks or decides, and a patch
// with what nobody can say of himself: who asked (sluice.dev/created-by), who
// decided, and when.
//
// It never grants anything, never repeats what the schema checks, and is not asked
// about what lifecycle writes: that goes on while the webhook is down.
package extension

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/validation"
)

// Validator judges Extensions that are asked for, and decisions on them.
type Validator struct {
	// Cached reads Projects (by evaluation.ProjectNamespaceIndex), Departments and
	// WorkloadClocks.
	Cached client.Reader
	// Live lists the Extensions of a namespace: they are too seldom asked for to be
	// kept in memory.
	Live client.Reader
	// Authorizer knows who administers departments.
	Authorizer validation.DepartmentAuthorizer
}

var _ admission.Validator[*v1alpha1.Extension] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator: somebody asks.
func (v *Validator) ValidateCreate(ctx context.Context, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, err
	}
	w, err := v.readClusterState(ctx, request.Namespace, extension)
	if err != nil {
		return nil, err
	}
	if w.tenant == nil {
		return nil, newNoProjectError(extension, request.Namespace)
	}
	if by := extension.Annotations[v1alpha1.AnnotationCreatedBy]; by != request.UserInfo.Username {
		return nil, newForbiddenError(extension, "metadata.annotations[%s] must name the requester, %s, not %q", v1alpha1.AnnotationCreatedBy, request.UserInfo.Username, by)
	}
	if w.pending >= MaxPending {
		return nil, newForbiddenError(extension, "namespace %s has %d extensions without a decision, and the limit is %d; wait for a decision by %s, or delete extensions that are not needed (`sluice extensions -n %s`)",
			request.Namespace, w.pending, MaxPending, w.tenant.describeApprovers(), request.Namespace)
	}
	warnings, errs := validateRequest(extension, &w)
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(extensionKind, extension.Name, errs)
	}
	return warnings, nil
}

// ValidateUpdate implements admission.Validator: somebody decides. What else
// changes of an Extension is the schema's to judge.
func (v *Validator) ValidateUpdate(ctx context.Context, before, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || request.SubResource != statusSubresource {
		return nil, err
	}
	change := classifyChange(&before.Status, &extension.Status)
	if change == statusUnchanged {
		return nil, nil
	}
	o, err := resolveTenant(ctx, v.Cached, request.Namespace)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, newNoProjectError(extension, request.Namespace)
	}
	may, err := canDecide(ctx, request.UserInfo, o, v.Authorizer)
	switch {
	case err != nil:
		return nil, err
	case !may:
		return nil, newForbiddenError(extension, "%s cannot decide on it; %s can", request.UserInfo.Username, o.describeApprovers())
	case change == statusAlreadyDecided:
		return nil, newForbiddenError(extension, "it was already decided (%s), and a decision is final; create a new extension instead", before.Status.Decision)
	case change == protectedFieldChanged:
		return nil, newForbiddenError(extension, "status: an approver writes only the decision and the message; Sluice writes the other fields")
	case change == decisionMissing:
		return nil, newForbiddenError(extension, "status.decision: must be %s or %s", v1alpha1.ExtensionApproved, v1alpha1.ExtensionDenied)
	case extension.Status.DecidedBy != request.UserInfo.Username:
		return nil, newForbiddenError(extension, "status.decidedBy must name the approver, %s, not %q", request.UserInfo.Username, extension.Status.DecidedBy)
	}
	return nil, nil
}

// ValidateDelete implements admission.Validator: who may delete is RBAC's to say.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Extension) (admission.Warnings, error) {
	return nil, nil
}

// readClusterState is what somebody who asks is judged by.
func (v *Validator) readClusterState(ctx context.Context, namespace string, extension *v1alpha1.Extension) (w clusterState, err error) {
	if w.tenant, err = resolveTenant(ctx, v.Cached, namespace); w.tenant == nil || err != nil {
		return w, err
	}
	var all v1alpha1.ExtensionList
	if err := v.Live.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return w, fmt.Errorf("list extensions in namespace %s: %w", namespace, err)
	}
	for i := range all.Items {
		if all.Items[i].Status.Decision == "" {
			w.pending++
		}
	}
	if extension.Spec.Action != v1alpha1.ActionExtend {
		return w, nil
	}
	target := extension.Spec.Target
	name := v1alpha1.WorkloadClockName(schema.FromAPIVersionAndKind(target.APIVersion, "").Group, target.Kind, target.Name)
	var clock v1alpha1.WorkloadClock
	switch err := v.Cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &clock); {
	case err == nil:
		w.clock = &clock
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("get clock %s/%s: %w", namespace, name, err)
	}
	return w, nil
}

var (
	extensionKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Extension"}
	extensionResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "extensions"}
)

func newForbiddenError(extension *v1alpha1.Extension, format string, args ...any) error {
	return apierrors.NewForbidden(extensionResource, extension.Name, fmt.Errorf(format, args...))
}

func newNoProjectError(extension *v1alpha1.Extension, namespace string) error {
	return newForbiddenError(extension, "no project owns namespace %s, so no workload there has a time limit; create extensions in a project's namespace", namespace)
}

// namespaceTenant is whose a namespace is. Both objects are the cache's, and never changed.
type namespaceTenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// resolveTenant is whose the namespace is; nil where no project has it.
func resolveTenant(ctx context.Context, cached client.Reader, namespace string) (*namespaceTenant, error) {
	var projects v1alpha1.ProjectList
	if err := cached.List(ctx, &projects, client.MatchingFields{evaluation.ProjectNamespaceIndex: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the project of namespace %s: %w", namespace, err)
	}
	if len(projects.Items) == 0 {
		return nil, nil
	}
	o := &namespaceTenant{project: &projects.Items[0], department: &v1alpha1.Department{}}
	if err := cached.Get(ctx, types.NamespacedName{Name: o.project.Spec.Department}, o.department); err != nil {
		return nil, fmt.Errorf("reading department %s of project %s: %w", o.project.Spec.Department, o.project.Name, err)
	}
	return o, nil
}

// MaxPending is how many Extensions of a namespace may wait for a decision. Those who
// ask at the same instant may exceed it by as many as they are.
const MaxPending = 10

// clusterState is what somebody who asks is judged by.
type clusterState struct {
	// tenant is whose the namespace is.
	tenant *namespaceTenant
	// clock is that of the workload; nil where there is none.
	clock *v1alpha1.WorkloadClock
	// pending is how many Extensions of the namespace wait for a decision.
	pending int
}

// validateRequest tells what is wrong with an Extension that is asked for, and what whoever
// asks should know. Of a project's renewal or deletion it has nothing to say.
func validateRequest(extension *v1alpha1.Extension, w *clusterState) (warnings []string, errs field.ErrorList) {
	spec := &extension.Spec
	if spec.Action != v1alpha1.ActionExtend {
		return nil, nil
	}
	path := field.NewPath("spec", "target")
	target := spec.Target
	version, err := schema.ParseGroupVersion(target.APIVersion)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path.Child("apiVersion"), target.APIVersion, "must be a group and a version, such as batch/v1, or v1 for a Pod")}
	}
	clock := w.clock
	// Two groups may have kinds of one name; the clock's name has only a hash of them.
	if clock != nil && (clock.Spec.Root.Name != target.Name || clock.Spec.Root.Kind != target.Kind ||
		schema.FromAPIVersionAndKind(clock.Spec.Root.APIVersion, "").Group != version.Group) {
		clock = nil
	}
	name := target.Kind + " " + target.Name
	switch {
	case clock == nil:
		return nil, field.ErrorList{field.Invalid(path, name,
			"no GPU pod of this workload has run in the namespace, so it has no time limit; name the root workload as `sluice clocks -n "+extension.Namespace+"` lists it: the Job, not one of its pods")}
	case clock.Status.MissingSince != nil:
		return nil, field.ErrorList{field.Invalid(path, name, "this workload no longer exists")}
	case len(clock.Status.Extensions)+MaxPending >= v1alpha1.MaxClockExtensions:
		return nil, field.ErrorList{field.Invalid(path, name, fmt.Sprintf(
			"it was already extended %d times, which is the maximum; let it end and start it again", len(clock.Status.Extensions)))}
	case slices.ContainsFunc(clock.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == extension.Name }):
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), extension.Name,
			"the workload already has an extension of this name; choose another, or use metadata.generateName")}
	}
	return warnRequest(spec, w), nil
}

// warnRequest says what makes an Extension wait for somebody, or useless.
func warnRequest(spec *v1alpha1.ExtensionSpec, w *clusterState) (warnings []string) {
	status, terms := &w.clock.Status, &w.tenant.department.Spec.Extensions
	if status.Limit == nil && status.Deadline == nil && status.Stopped == nil {
		warnings = append(warnings, fmt.Sprintf("%s %s has no time limit at present and needs no extension", spec.Target.Kind, spec.Target.Name))
	}
	switch each := terms.MaxDuration; {
	case spec.By == nil: // the schema refuses it
	case terms.SelfService == 0:
		warnings = append(warnings, fmt.Sprintf("department %s grants no extension automatically: it waits for a decision by %s", w.tenant.department.Name, w.tenant.describeApprovers()))
	case each != nil && spec.By.Length() > each.Length():
		warnings = append(warnings, fmt.Sprintf("department %s grants at most %s automatically: %s wait for a decision by %s", w.tenant.department.Name, each, spec.By, w.tenant.describeApprovers()))
	}
	return warnings
}
