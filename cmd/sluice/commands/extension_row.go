// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// extensionRow is an Extension as the commands print it.
type extensionRow struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Action    v1alpha1.ExtensionAction `json:"action"`
	// Kind and Target are the kind and name of the target.
	Kind   string `json:"kind"`
	Target string `json:"target"`
	// By is the additional time of a workload.
	By string `json:"by,omitempty"`
	// RequestedBy is the user, as admission recorded it.
	RequestedBy string `json:"requestedBy,omitempty"`
	// OnBehalfOf is the address of the owner for whom an administrator requested a renewal.
	OnBehalfOf  v1alpha1.EmailAddress      `json:"onBehalfOf,omitempty"`
	RequestedAt time.Time                  `json:"requestedAt"`
	Reason      string                     `json:"reason"`
	Decision    v1alpha1.ExtensionDecision `json:"decision,omitempty"`
	DecidedBy   string                     `json:"decidedBy,omitempty"`
	Message     string                     `json:"message,omitempty"`
	// Until is the last day for which a dismissed deletion is not requested again.
	Until *period.Date `json:"until,omitempty"`
	// NewEnd is the end of the target since the Extension was applied.
	NewEnd *time.Time `json:"newEnd,omitempty"`
}

func newExtensionRow(extension *v1alpha1.Extension) extensionRow {
	spec, status := &extension.Spec, &extension.Status
	row := extensionRow{
		Namespace: extension.Namespace, Name: extension.Name,
		Action: spec.Action, Kind: spec.Target.Kind, Target: spec.Target.Name, Reason: spec.Reason, OnBehalfOf: spec.OnBehalfOf,
		RequestedBy: extension.Annotations[v1alpha1.AnnotationCreatedBy], RequestedAt: extension.CreationTimestamp.UTC(),
		Decision: status.Decision, DecidedBy: status.DecidedBy, Message: status.Message, Until: status.Until, NewEnd: optionalTime(status.NewEnd),
	}
	if spec.By != nil {
		row.By = spec.By.String()
	}
	return row
}

// extensionTable returns the table of rows. The time now is real time.
func extensionTable(rows []extensionRow, namespaces, decided bool, now time.Time) printer.Table {
	table := printer.Table{Columns: append([]printer.Column{{Name: "NAMESPACE", Hidden: !namespaces}},
		printer.Columns("NAME", "ACTION", "TARGET", "BY", "REQUESTED BY", "AGE")...)}
	table.Columns = append(table.Columns,
		printer.Column{Name: "DECISION", Hidden: !decided}, printer.Column{Name: "DECIDED BY", Hidden: !decided, Wide: true},
		printer.Column{Name: "MESSAGE", Hidden: !decided, Wide: true}, printer.Column{Name: "REASON"})
	for _, r := range rows {
		requester := r.RequestedBy
		if r.OnBehalfOf != "" {
			requester += " for " + string(r.OnBehalfOf)
		}
		table.Rows = append(table.Rows, []string{
			r.Namespace, r.Name, string(r.Action), r.Kind + "/" + r.Target, r.By, requester,
			printer.FormatDuration(now.Sub(r.RequestedAt)), string(r.Decision), r.DecidedBy, r.Message, r.Reason,
		})
	}
	return table
}

// describeExtensionRequest returns the request of an Extension in a few words,
// sanitized.
func describeExtensionRequest(extension *v1alpha1.Extension) string {
	spec := &extension.Spec
	target := spec.Target.Kind + " " + printer.Sanitize(spec.Target.Name)
	switch {
	case spec.By != nil:
		return fmt.Sprintf("%s more for %s", spec.By, target)
	case spec.Action == v1alpha1.ActionDelete:
		return "the deletion of " + target
	default:
		return "the renewal of " + target
	}
}

// describeExtensionOutcome returns the decision on an Extension and its effect in
// one line, sanitized, with times in zone.
func describeExtensionOutcome(extension *v1alpha1.Extension, zone *time.Location) string {
	status := &extension.Status
	var text string
	switch status.Decision {
	case v1alpha1.ExtensionApproved:
		text = "approved"
	case v1alpha1.ExtensionDenied:
		text = "denied"
	default:
		pending := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApplied)
		if pending == nil || pending.Message == "" {
			return "not decided yet"
		}
		return "not decided yet: " + printer.Sanitize(pending.Message)
	}
	if status.DecidedBy != "" {
		text += " by " + printer.Sanitize(status.DecidedBy)
	}
	if status.Message != "" {
		text += ": " + printer.Sanitize(status.Message)
	}
	applied := appliedCondition(extension)
	switch {
	case status.NewEnd != nil && extension.Spec.Action == v1alpha1.ActionRenew:
		text += fmt.Sprintf("; Project %s is valid until %s",
			printer.Sanitize(extension.Spec.Target.Name), period.FormatEnd(status.NewEnd.Time, zone))
	case status.NewEnd != nil:
		text += fmt.Sprintf("; %s %s ends %s", extension.Spec.Target.Kind, printer.Sanitize(extension.Spec.Target.Name),
			printer.FormatMinute(status.NewEnd.Time, zone))
	case status.Decision == v1alpha1.ExtensionApproved && applied != nil && applied.Message != "":
		text += "; " + printer.Sanitize(applied.Message)
	}
	return text
}
