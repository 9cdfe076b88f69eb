// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// validateRenewal refuses a renewal by other users than an owner of the project, or an administrator of the department
// for one, and a renewal of a project that cannot be renewed now. Extensions without a decision do not limit it: a
// project has one renewal at a time.
func (v *Validator) validateRenewal(
	ctx context.Context, user authenticationv1.UserInfo, extension *v1alpha1.Extension, state *clusterState,
) (warnings []string, err error) {
	t := state.tenant
	if errs := validateTarget(extension, t.project); len(errs) > 0 {
		return nil, apierrors.NewInvalid(extensionKind, extension.Name, errs)
	}
	if err := v.validateRequester(ctx, user, extension, t); err != nil {
		return nil, err
	}
	if obstacle := describeObstacle(t, v.Clock.Now()); obstacle != "" {
		return nil, newForbiddenError(extension, "%s", obstacle)
	}
	if other := state.pendingRenewal; other != nil {
		return nil, newForbiddenError(extension, "project %s has the renewal %s, which %s; the project can be renewed again when its "+
			"owners are warned of the next expiry (`sluice extensions -n %s --decided`)",
			t.project.Name, other.Name, describePending(other, t), extension.Namespace)
	}
	used := 0
	if expiry := t.project.Status.Expiry; expiry != nil {
		used = int(expiry.SelfServiceRenewals)
	}
	switch allowed, limited := t.department.Spec.Projects.SelfServiceRenewals(); {
	case limited && allowed == 0:
		warnings = append(warnings, fmt.Sprintf("department %s renews no project automatically: it waits for a decision by %s",
			t.department.Name, t.describeApprovers(v1alpha1.ActionRenew)))
	case limited && used >= allowed:
		warnings = append(warnings, fmt.Sprintf("project %s has had all its automatic renewals (%d of %d): it waits for a decision by %s",
			t.project.Name, used, allowed, t.describeApprovers(v1alpha1.ActionRenew)))
	}
	return warnings, nil
}

// validateRequester refuses a renewal by a user who is neither an owner nor an administrator of the department who names
// an owner.
func (v *Validator) validateRequester(
	ctx context.Context, user authenticationv1.UserInfo, extension *v1alpha1.Extension, t *namespaceTenant,
) error {
	address, path := extension.Spec.OnBehalfOf, field.NewPath("spec", "onBehalfOf")
	invalid := func(err *field.Error) error {
		return apierrors.NewInvalid(extensionKind, extension.Name, field.ErrorList{err})
	}
	if t.project.HasOwner(user.Username) {
		if address != "" {
			return invalid(field.Invalid(path, address, "omit it: you are an owner of the project and renew it in your own name"))
		}
		return nil
	}
	administrator, err := hasRole(ctx, user, t.members(), t, v.Authorizer,
		[]v1alpha1.ApproverRole{v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator)})
	switch {
	case err != nil:
		return err
	case !administrator:
		return newForbiddenError(extension, "%s is no owner of project %s; ask an owner (%s) to renew it, or an administrator of "+
			"department %s to do so on behalf of an owner", user.Username, t.project.Name, describeOwners(t.project), t.department.Name)
	case address == "":
		return invalid(field.Required(path, fmt.Sprintf("you are no owner of project %s; name the address of the owner for whom you "+
			"renew it (the owners are %s)", t.project.Name, describeOwners(t.project))))
	case !t.project.HasOwnerAddress(address):
		return invalid(field.Invalid(path, address, fmt.Sprintf("must be the address of an owner of project %s (the owners are %s)",
			t.project.Name, describeOwners(t.project))))
	}
	return nil
}

// maxNamedOwners limits the names of owners in a message.
const maxNamedOwners = 5

// describeOwners returns the names of the owners. Members may read them; the addresses are in the Project.
func describeOwners(project *v1alpha1.Project) string {
	owners := project.Spec.Owners
	var names []string
	for i := range owners[:min(len(owners), maxNamedOwners)] {
		names = append(names, string(owners[i].Name))
	}
	if more := len(owners) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// describePending describes the state of a renewal that is not applied.
func describePending(renewal *v1alpha1.Extension, t *namespaceTenant) string {
	if renewal.Status.Decision == "" {
		return "waits for a decision by " + t.describeApprovers(v1alpha1.ActionRenew)
	}
	return "was approved and takes effect within moments"
}

const dayFormat = "2 January 2006"

// describeObstacle returns why the project cannot be renewed now; empty if it can.
func describeObstacle(t *namespaceTenant, now time.Time) string {
	project, department, zone := t.project, t.department, t.timeZone()
	switch spec := &project.Spec; {
	case !project.DeletionTimestamp.IsZero():
		return fmt.Sprintf("project %s is being deleted", project.Name)
	case department.Spec.Projects.Validity == nil:
		return fmt.Sprintf("projects of department %s do not expire, so project %s needs no renewal", department.Name, project.Name)
	case spec.Exempt.IsInForce(now, zone):
		return fmt.Sprintf("project %s is exempt from expiry%s (%s), so it needs no renewal",
			project.Name, describeUntil(spec.Exempt), spec.Exempt.Reason)
	case spec.Hold.IsInForce(now, zone):
		return fmt.Sprintf("project %s is on hold%s (%s) and keeps its phase; it can be renewed when an administrator of department %s "+
			"has removed the hold", project.Name, describeUntil(spec.Hold), spec.Hold.Reason, department.Name)
	case project.Status.Phase.IsRenewable():
		return ""
	}
	text := fmt.Sprintf("project %s is not about to expire (phase %s), and can be renewed once its owners were warned of the expiry",
		project.Name, project.Status.Phase)
	if project.Status.Phase == "" {
		text = fmt.Sprintf("project %s has no phase yet, and can be renewed once its owners were warned of the expiry", project.Name)
	}
	if at := renewableFrom(project, department, now); !at.IsZero() {
		text += ": it can be renewed from " + at.In(zone).Format(dayFormat) + " on"
	}
	return text
}

// describeUntil describes the last day of an exception, if it has one.
func describeUntil(exception *v1alpha1.Exception) string {
	if exception.Until == nil {
		return ""
	}
	return " until the end of " + exception.Until.String()
}

// renewableFrom returns when the warnings of the next expiry begin at the latest; zero if that is not known. Holidays and
// digests can bring them forward by some days. A lead that is no longer ahead does not fit into the period.
func renewableFrom(project *v1alpha1.Project, department *v1alpha1.Department, now time.Time) (from time.Time) {
	status := &project.Status
	switch {
	case department.Spec.Projects.AtExpiry == v1alpha1.ExpiryConfirm && status.ExpiresAt != nil:
		return status.ExpiresAt.Time // the confirmation is requested on the anniversary
	case department.Spec.Projects.AtExpiry == v1alpha1.ExpiryConfirm || status.Next == nil:
		return time.Time{}
	}
	for _, lead := range department.Spec.Notices.ProjectExpiry {
		if at := status.Next.At.Add(-lead.Length()); at.After(now) && (from.IsZero() || at.Before(from)) {
			from = at
		}
	}
	return from
}
