// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// projectDocument is the JSON output of projects.
type projectDocument struct {
	// Now is the policy time of the rows.
	Now time.Time `json:"now"`
	// Projects are never null.
	Projects []projectRow `json:"projects"`
}

// projectRow is the expiry of one project.
type projectRow struct {
	Name       string `json:"name"`
	Department string `json:"department"`
	Namespace  string `json:"namespace"`
	// Phase is empty until lifecycle has observed the project.
	Phase v1alpha1.ProjectPhase `json:"phase,omitempty"`
	// ExpiresAt is the end of the validity; nil if the project does not expire.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// NextPhase follows at NextAt, unless the project is renewed.
	NextPhase v1alpha1.ProjectPhase `json:"nextPhase,omitempty"`
	NextAt    *time.Time            `json:"nextAt,omitempty"`
	// Blocked says why the next step cannot happen, RenewalPending that it waits for the decision on a
	// renewal.
	Blocked        string `json:"blocked,omitempty"`
	RenewalPending bool   `json:"renewalPending,omitempty"`
	// ClosedAt is since when the project accepts no new pods with GPUs.
	ClosedAt *time.Time       `json:"closedAt,omitempty"`
	Owners   []v1alpha1.Owner `json:"owners"`
	Hold     *exceptionRow    `json:"hold,omitempty"`
	Exempt   *exceptionRow    `json:"exempt,omitempty"`
	// FirstWarnedAt and LastWarnedAt are when the first and the last warning of the
	// next step were sent.
	FirstWarnedAt *time.Time `json:"firstWarnedAt,omitempty"`
	LastWarnedAt  *time.Time `json:"lastWarnedAt,omitempty"`
	// RenewedAt is the time of the last renewal.
	RenewedAt *time.Time `json:"renewedAt,omitempty"`
	// SelfServiceRenewals counts the renewals without approval.
	SelfServiceRenewals int32 `json:"selfServiceRenewals"`
}

// exceptionRow is a hold or an exemption.
type exceptionRow struct {
	Reason string       `json:"reason"`
	Until  *period.Date `json:"until,omitempty"`
	// SetBy is the user who set it, as admission recorded it.
	SetBy string `json:"setBy,omitempty"`
	// Ended reports whether its last day has passed.
	Ended bool `json:"ended,omitempty"`
}

// newProjectRows returns the rows of projects, the earliest next step first.
func newProjectRows(projects []v1alpha1.Project, now time.Time) []projectRow {
	rows := make([]projectRow, 0, len(projects))
	for i := range projects {
		rows = append(rows, newProjectRow(&projects[i], now))
	}
	sortProjectRows(rows, now)
	return rows
}

func newProjectRow(project *v1alpha1.Project, now time.Time) projectRow {
	spec, status := &project.Spec, &project.Status
	row := projectRow{
		Name: project.Name, Department: spec.Department, Namespace: project.NamespaceName(), Owners: spec.Owners,
		Phase: status.Phase, ExpiresAt: optionalTime(status.ExpiresAt), ClosedAt: optionalTime(status.ClosedAt),
		Hold:   newExceptionRow(spec.Hold, project.Annotations[v1alpha1.HeldByAnnotation], now),
		Exempt: newExceptionRow(spec.Exempt, project.Annotations[v1alpha1.ExemptedByAnnotation], now),
	}
	if held := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld); held != nil && held.Status == metav1.ConditionTrue {
		row.RenewalPending = held.Reason == v1alpha1.ReasonExtensionPending
		if row.Hold != nil {
			row.Hold.Ended = row.RenewalPending
		}
	}
	if row.Exempt != nil && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionExempt) {
		row.Exempt.Ended = false
	}
	if next := status.Next; next != nil {
		row.NextPhase, row.NextAt = next.Phase, optionalTime(&next.At)
	}
	blocked := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExpiryBlocked)
	if blocked != nil && blocked.Status == metav1.ConditionTrue {
		row.Blocked = cmp.Or(blocked.Message, blocked.Reason)
	}
	if expiry := status.Expiry; expiry != nil {
		row.FirstWarnedAt, row.LastWarnedAt = optionalTime(expiry.FirstWarnedAt), optionalTime(expiry.LastWarnedAt)
		row.SelfServiceRenewals = expiry.SelfServiceRenewals
		if expiry.LastRenewal != nil {
			row.RenewedAt = optionalTime(&expiry.LastRenewal.At)
		}
	}
	return row
}

// newExceptionRow returns the row of an exception. The time zone of its last day is that of the department, which a
// member may not read: where the conditions of the project do not show it in force, it has ended once that day has
// ended in a zone.
func newExceptionRow(exception *v1alpha1.Exception, setBy string, now time.Time) *exceptionRow {
	if exception == nil {
		return nil
	}
	row := &exceptionRow{Reason: exception.Reason, Until: exception.Until, SetBy: setBy}
	row.Ended = row.Until != nil && !now.Before(row.Until.End(time.UTC).Add(-14*time.Hour))
	return row
}

// hasStepBefore reports whether the validity of a project ends in the time from now to
// until, or its next step is before until.
func (r *projectRow) hasStepBefore(now, until time.Time) bool {
	return r.NextAt != nil && !r.NextAt.After(until) || r.ExpiresAt != nil && r.ExpiresAt.After(now) && !r.ExpiresAt.After(until)
}

// sortProjectRows sorts projects with a next step by its time, then those that accept
// no new pods with GPUs, then all others by name.
func sortProjectRows(rows []projectRow, now time.Time) {
	key := func(r projectRow) int64 {
		switch {
		case r.ExpiresAt != nil && r.ExpiresAt.After(now):
			return r.ExpiresAt.Unix()
		case r.NextAt != nil:
			return r.NextAt.Unix()
		case r.ClosedAt != nil:
			return math.MaxInt64 - 1
		default:
			return math.MaxInt64
		}
	}
	slices.SortStableFunc(rows, func(a, b projectRow) int { return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.Name, b.Name)) })
}

// projectTable returns the table of rows at a policy time, with times in zone.
func projectTable(rows []projectRow, now time.Time, zone *time.Location) printer.Table {
	table := printer.Table{Columns: printer.Columns("NAME", "DEPARTMENT", "PHASE", "EXPIRES", "NEXT", "NEXT AT", "OWNER", "EXCEPTION")}
	for _, name := range []string{"SET BY", "REASON", "WARNED", "CLOSED", "RENEWED", "NAMESPACE", "BLOCKED"} {
		table.Columns = append(table.Columns, printer.Column{Name: name, Wide: true})
	}
	for _, r := range rows {
		kind, exception := r.exception()
		var text, setBy, reason string
		if exception != nil {
			text, setBy, reason = exception.describe(kind), exception.SetBy, exception.Reason
		}
		table.Rows = append(table.Rows, []string{
			r.Name, r.Department, string(r.Phase), formatOptionalEnd(r.ExpiresAt, zone), r.describeNext(now),
			formatOptionalEnd(r.NextAt, zone), describeOwners(r.Owners), text, setBy, reason, r.describeWarnings(zone),
			formatOptionalMinute(r.ClosedAt, zone), formatOptionalMinute(r.RenewedAt, zone), r.Namespace, r.Blocked,
		})
	}
	return table
}

func formatOptionalEnd(at *time.Time, zone *time.Location) string {
	if at == nil {
		return ""
	}
	return period.FormatEnd(*at, zone)
}

// describeNext returns the next phase and the time until then.
func (r *projectRow) describeNext(now time.Time) string {
	switch {
	case r.NextAt == nil:
		return ""
	case r.Blocked != "":
		return string(r.NextPhase) + " (blocked)"
	case r.RenewalPending:
		return string(r.NextPhase) + " (renewal pending)"
	case !r.NextAt.After(now):
		return string(r.NextPhase) + " (due)"
	}
	return fmt.Sprintf("%s in %s", r.NextPhase, printer.FormatDuration(r.NextAt.Sub(now)))
}

// describeOwners returns the address of the first owner and the number of others.
func describeOwners(owners []v1alpha1.Owner) string {
	switch len(owners) {
	case 0:
		return ""
	case 1:
		return string(owners[0].Email)
	}
	return fmt.Sprintf("%s +%d", owners[0].Email, len(owners)-1)
}

// exception returns the exception in force, of which the exemption has more effect.
func (r *projectRow) exception() (kind string, exception *exceptionRow) {
	if r.Exempt != nil && (!r.Exempt.Ended || r.Hold == nil || r.Hold.Ended) {
		return "exempt", r.Exempt
	}
	return "hold", r.Hold
}

func (e *exceptionRow) describe(kind string) string {
	switch {
	case e.Until == nil:
		return kind
	case e.Ended:
		return kind + " ended " + e.Until.String()
	}
	return kind + " until " + e.Until.String()
}

// describeWarnings returns when the first and the last warning were sent.
func (r *projectRow) describeWarnings(zone *time.Location) string {
	var sent []string
	for _, at := range []*time.Time{r.FirstWarnedAt, r.LastWarnedAt} {
		if at != nil && (len(sent) == 0 || !at.Equal(*r.FirstWarnedAt)) {
			sent = append(sent, at.In(zone).Format(time.DateOnly))
		}
	}
	return strings.Join(sent, ", last ")
}
