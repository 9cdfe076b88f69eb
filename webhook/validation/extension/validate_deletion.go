// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// MaxDismissal limits for how many years a deletion is dismissed.
const MaxDismissal = 5

// deletionRequestPrefix begins the names of lifecycle's requests. With such a name a user's request would be in the way of
// lifecycle's.
const deletionRequestPrefix = "deletion-"

// validateDeletionRequest refuses the deletion of a project on a user's request, and a name that lifecycle's requests
// have: lifecycle alone requests it, and its requests are not sent to the webhook.
func validateDeletionRequest(extension *v1alpha1.Extension) (errs field.ErrorList) {
	if extension.Spec.Action == v1alpha1.ActionDelete {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "action"), "Delete is requested by Sluice alone, when a project has ended; "+
			"an administrator of the department deletes a project with `kubectl delete slproj`"))
	}
	if strings.HasPrefix(extension.Name, deletionRequestPrefix) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), extension.Name,
			"must not begin with "+deletionRequestPrefix+", as the names of Sluice's requests to delete a project do; choose another, or "+
				"use metadata.generateName"))
	}
	return errs
}

// validateDeletionDecision refuses a decision on another request than the project's present one, one without a reason, an
// approval of a project that is kept at present, and a dismissal without the end that it needs.
func (v *Validator) validateDeletionDecision(extension *v1alpha1.Extension, t *namespaceTenant) error {
	now, approved := v.Clock.Now(), extension.Status.Decision == v1alpha1.ExtensionApproved
	if obstacle := describeDeletionObstacle(extension, t, now); obstacle != "" {
		return newForbiddenError(extension, "%s", obstacle)
	}
	if !strings.ContainsFunc(extension.Status.Message, isVisible) {
		return newForbiddenError(extension, "status.message: required: the owners of project %s read in it why its deletion is %s",
			t.project.Name, map[bool]string{true: "approved", false: "dismissed"}[approved])
	}
	until := extension.Status.Until
	switch {
	case approved && until != nil:
		return newForbiddenError(extension, "status.until: %s: is for a dismissal; omit it for an approval", until)
	case approved:
		return nil
	}
	return validateDismissal(extension, t, now)
}

// isVisible reports whether a character shows something: neither a blank nor a character without a width.
func isVisible(r rune) bool { return unicode.IsPrint(r) && r != ' ' }

// validateDismissal refuses a dismissal of a suspended project without an end, or with an end that is not ahead or too far
// ahead. A project whose owners did not confirm it needs none: it is Active until its next anniversary.
func validateDismissal(extension *v1alpha1.Extension, t *namespaceTenant, now time.Time) error {
	project, until, today := t.project, extension.Status.Until, period.DateOf(now, t.timeZone())
	latest := period.DateOf(now.In(t.timeZone()).AddDate(MaxDismissal, 0, 0), t.timeZone())
	want := fmt.Sprintf("give a day after today (%s, %s) and at most %d years ahead (%s)", today, t.timeZone(), MaxDismissal, latest)
	switch {
	case project.Status.ClosedAt == nil && until != nil:
		return newForbiddenError(extension, "status.until: %s: omit it: the owners of project %s did not confirm it, and with the "+
			"dismissal it is Active until its next anniversary", until, project.Name)
	case project.Status.ClosedAt == nil:
		return nil
	case until == nil || until.IsZero():
		return newForbiddenError(extension, "status.until: required: project %s stays suspended until then, and its deletion is requested "+
			"again; %s", project.Name, want)
	case until.Compare(today) <= 0, until.Compare(latest) > 0:
		return newForbiddenError(extension, "status.until: %s: %s", until, want)
	}
	return nil
}

// describeDeletionObstacle returns why the deletion of the project cannot be decided on now with this request; empty if it
// can. Lifecycle withdraws the request of a project on hold, which is exempt, or which does not expire any more.
func describeDeletionObstacle(extension *v1alpha1.Extension, t *namespaceTenant, now time.Time) string {
	project, spec, zone := t.project, &t.project.Spec, t.timeZone()
	withdrawn := "; Sluice withdraws the request"
	switch {
	case !project.DeletionTimestamp.IsZero(), project.Status.Phase == v1alpha1.ProjectDeleting:
		return fmt.Sprintf("project %s is being deleted already", project.Name)
	case project.Status.Phase != v1alpha1.ProjectPendingDeletion:
		return fmt.Sprintf("project %s does not await the approval of its deletion (phase %s)%s", project.Name, project.Status.Phase, withdrawn)
	case extension.Name != project.Status.DeletionRequest || extension.Spec.Target.Name != project.Name:
		return fmt.Sprintf("it is not the request to delete project %[1]s (status.deletionRequest is %[2]q); decide with "+
			"`sluice approve project/%[1]s --delete` or `sluice dismiss project/%[1]s`, which find that request",
			project.Name, project.Status.DeletionRequest)
	case t.department.Spec.Projects.Validity == nil:
		return fmt.Sprintf("projects of department %s do not expire, so project %s is kept%s", t.department.Name, project.Name, withdrawn)
	case spec.Exempt.IsInForce(now, zone):
		return fmt.Sprintf("project %s is exempt from expiry%s (%s)%s", project.Name, describeUntil(spec.Exempt), spec.Exempt.Reason, withdrawn)
	case spec.Hold.IsInForce(now, zone):
		return fmt.Sprintf("project %s is on hold%s (%s)%s, and requests the deletion again when the hold has ended",
			project.Name, describeUntil(spec.Hold), spec.Hold.Reason, withdrawn)
	}
	return ""
}
