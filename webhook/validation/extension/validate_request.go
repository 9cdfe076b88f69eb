// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// The limits of Extensions without a decision. Concurrent requests can exceed them.
const (
	// MaxPendingPerUser limits those that one user requested in a namespace.
	MaxPendingPerUser = 3
	// MaxPendingOfMembers limits those of a namespace, so that one mail lists them all. Owners, managers and
	// approvers have further room, which members cannot use up.
	MaxPendingOfMembers = 10
	// MaxPending limits those of a namespace, of all users together.
	MaxPending = 20
)

// clusterState has the objects that a new Extension is validated against.
type clusterState struct {
	tenant *namespaceTenant
	// clock is the workload's clock; nil if it has none.
	clock *v1alpha1.WorkloadClock
	// pending is the number of Extensions of the namespace without a decision, pendingOfUser that of the requester.
	pending, pendingOfUser int
	// pendingRenewal is a renewal of the project that is neither applied nor denied; nil for none.
	pendingRenewal *v1alpha1.Extension
}

// validateNumber refuses an Extension beyond the limits of those without a decision.
func (v *Validator) validateNumber(
	ctx context.Context, user authenticationv1.UserInfo, extension *v1alpha1.Extension, state *clusterState,
) error {
	namespace, approvers := extension.Namespace, state.tenant.describeApprovers(extension.Spec.Action)
	switch {
	case state.pendingOfUser >= MaxPendingPerUser:
		return newForbiddenError(extension, "%s has %d extensions without a decision in namespace %s, and the limit is %d; "+
			"wait for a decision by %s, or delete those that are not needed (`sluice extensions -n %s`)",
			user.Username, state.pendingOfUser, namespace, MaxPendingPerUser, approvers, namespace)
	case state.pending < MaxPendingOfMembers:
		return nil
	case state.pending < MaxPending:
		if privileged, err := v.managesRequests(ctx, user, state.tenant); privileged || err != nil {
			return err
		}
	}
	return newForbiddenError(extension, "namespace %s has %d extensions without a decision, and the limit is %d, and %d for the "+
		"project's owners and managers and the approvers; wait for a decision by %s, or ask the requesters to delete those that are not "+
		"needed (`sluice extensions -n %s`)", namespace, state.pending, MaxPendingOfMembers, MaxPending, approvers, namespace)
}

// validateDailyNumber refuses an Extension of a user who has requested too many decisions within a day. Lifecycle
// records them in the project's status, so that those that were deleted count, too.
func (v *Validator) validateDailyNumber(user authenticationv1.UserInfo, extension *v1alpha1.Extension, state *clusterState) error {
	now := v.Clock.Now()
	recent := state.tenant.project.Status.RecentExtensionRequests(user.Username, now)
	if len(recent) < v1alpha1.MaxExtensionRequestsOfUser {
		return nil
	}
	next := recent[0].At.Add(24 * time.Hour).Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
	return newForbiddenError(extension, "%s has requested %d extensions in namespace %s within 24 hours that people decide on, deleted ones "+
		"included, and the limit is %d; request again at %s", user.Username, len(recent), extension.Namespace,
		v1alpha1.MaxExtensionRequestsOfUser, next.In(state.tenant.timeZone()).Format("2006-01-02 15:04 MST"))
}

// validatePerson refuses more time for another user's workload: the request would use up the self-service of its
// creator, and its decision. A workload whose creator is not known is extended by managers and approvers alone.
func (v *Validator) validatePerson(
	ctx context.Context, user authenticationv1.UserInfo, extension *v1alpha1.Extension, state *clusterState,
) error {
	creator, t := state.clock.Status.CreatedBy, state.tenant
	if creator == user.Username {
		return nil
	}
	if manages, err := v.managesRequests(ctx, user, t); manages || err != nil {
		return err
	}
	by, ask := "was created by "+creator, creator+", "
	if creator == "" {
		by, ask = "has no known creator", ""
	}
	return newForbiddenError(extension, "%s %s %s, and %s cannot extend it; ask %san owner or research manager of project %s, or %s",
		extension.Spec.Target.Kind, extension.Spec.Target.Name, by, user.Username, ask, t.project.Name,
		t.describeApprovers(v1alpha1.ActionExtend))
}

// managesRequests reports whether the user owns or manages the project, administers the department, or decides on
// Extensions.
func (v *Validator) managesRequests(ctx context.Context, user authenticationv1.UserInfo, t *namespaceTenant) (bool, error) {
	if t.project.HasOwner(user.Username) {
		return true, nil
	}
	return hasRole(ctx, user, t.members(), t, v.Authorizer, append([]v1alpha1.ApproverRole{
		v1alpha1.ApproverRole(v1alpha1.RoleResearchManager), v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator),
		v1alpha1.RoleSystemAdministrator,
	}, t.department.Approvers(v1alpha1.ActionExtend)...))
}

// validateTarget refuses an Extension of another namespace's project.
func validateTarget(extension *v1alpha1.Extension, project *v1alpha1.Project) (errs field.ErrorList) {
	spec, path := &extension.Spec, field.NewPath("spec")
	if spec.Action != v1alpha1.ActionExtend && spec.Target.Name != project.Name {
		errs = append(errs, field.Invalid(path.Child("target", "name"), spec.Target.Name, fmt.Sprintf(
			"must be %s, the project of namespace %s; create the extension in the namespace of the other project",
			project.Name, extension.Namespace)))
	}
	return errs
}

// validateRequest validates a new Extension, and warns the requester.
func validateRequest(extension *v1alpha1.Extension, state *clusterState) (warnings []string, errs field.ErrorList) {
	spec := &extension.Spec
	path := field.NewPath("spec", "target")
	target := spec.Target
	version, err := schema.ParseGroupVersion(target.APIVersion)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path.Child("apiVersion"), target.APIVersion,
			"must be a group and a version, such as batch/v1, or v1 for a Pod")}
	}
	clock := state.clock
	// The clock's name has only a hash of the group and kind, which other groups can share.
	if clock != nil && (clock.Spec.Root.Name != target.Name || clock.Spec.Root.Kind != target.Kind ||
		schema.FromAPIVersionAndKind(clock.Spec.Root.APIVersion, "").Group != version.Group) {
		clock = nil
	}
	name := target.Kind + " " + target.Name
	switch {
	case clock == nil:
		return nil, field.ErrorList{field.Invalid(path, name,
			"no GPU pod of this workload has run in the namespace, so it has no time limit; "+
				"name the root workload as `sluice clocks -n "+extension.Namespace+"` lists it: the Job, not one of its pods")}
	case clock.Status.MissingSince != nil:
		return nil, field.ErrorList{field.Invalid(path, name, "this workload no longer exists")}
	case len(clock.Status.Extensions)+MaxPending >= v1alpha1.MaxClockExtensions:
		return nil, field.ErrorList{field.Invalid(path, name, fmt.Sprintf(
			"it was already extended %d times, which is the maximum; let it end and start it again", len(clock.Status.Extensions)))}
	case slices.ContainsFunc(clock.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == extension.Name }):
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), extension.Name,
			"the workload already has an extension of this name; choose another, or use metadata.generateName")}
	}
	return warnRequest(spec, state), nil
}

// warnRequest warns of an Extension that has no effect, or that waits for a decision.
func warnRequest(spec *v1alpha1.ExtensionSpec, state *clusterState) (warnings []string) {
	status, terms := &state.clock.Status, &state.tenant.department.Spec.Extensions
	if status.Limit == nil && status.Deadline == nil && status.Stopped == nil {
		warnings = append(warnings, fmt.Sprintf("%s %s has no time limit at present and needs no extension", spec.Target.Kind, spec.Target.Name))
	}
	tenant := state.tenant
	switch limit := terms.MaxDuration; {
	case spec.By == nil: // the schema denies it
	case terms.SelfService == 0:
		warnings = append(warnings, fmt.Sprintf("department %s grants no extension automatically: it waits for a decision by %s",
			tenant.department.Name, tenant.describeApprovers(spec.Action)))
	case limit != nil && spec.By.Length() > limit.Length():
		warnings = append(warnings, fmt.Sprintf("department %s grants at most %s automatically: %s wait for a decision by %s",
			tenant.department.Name, limit, spec.By, tenant.describeApprovers(spec.Action)))
	}
	return warnings
}
