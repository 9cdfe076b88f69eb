// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// ExtensionRow is an Extension as it is shown.
type ExtensionRow struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Action    v1alpha1.ExtensionAction `json:"action"`
	// Kind and Target are the object's for which something is asked.
	Kind   string `json:"kind"`
	Target string `json:"target"`
	// By is how much more time is asked for.
	By string `json:"by,omitempty"`
	// RequestedBy is the user who asked, as admission recorded it.
	RequestedBy string                     `json:"askedBy,omitempty"`
	RequestedAt time.Time                  `json:"askedAt"`
	Reason      string                     `json:"reason"`
	Decision    v1alpha1.ExtensionDecision `json:"decision,omitempty"`
	DecidedBy   string                     `json:"decidedBy,omitempty"`
	Message     string                     `json:"message,omitempty"`
	// NewEnd is the end that holds since it was carried out.
	NewEnd *time.Time `json:"newEnd,omitempty"`
}

// NewExtensionRow is an Extension's row.
func NewExtensionRow(extension *v1alpha1.Extension) ExtensionRow {
	spec, status := &extension.Spec, &extension.Status
	row := ExtensionRow{
		Namespace: extension.Namespace, Name: extension.Name,
		Action: spec.Action, Kind: spec.Target.Kind, Target: spec.Target.Name,
		RequestedBy: extension.Annotations[v1alpha1.AnnotationCreatedBy], RequestedAt: extension.CreationTimestamp.UTC(), Reason: spec.Reason,
		Decision: status.Decision, DecidedBy: status.DecidedBy, Message: status.Message,
	}
	if spec.By != nil {
		row.By = spec.By.String()
	}
	if status.NewEnd != nil {
		end := status.NewEnd.UTC()
		row.NewEnd = &end
	}
	return row
}

// WriteExtensionTable prints rows for a person, as of the instant now of machine time. With
// namespaces it has a column for them, with decided one for the decision.
func WriteExtensionTable(output io.Writer, rows []ExtensionRow, namespaces, decided bool, now time.Time) error {
	table := printer.Table{Headers: []string{"NAME", "ACTION", "TARGET", "BY", "ASKED BY", "AGE"}}
	if namespaces {
		table.Headers = append([]string{"NAMESPACE"}, table.Headers...)
	}
	if decided {
		table.Headers = append(table.Headers, "DECISION")
	}
	table.Headers = append(table.Headers, "REASON")
	for _, r := range rows {
		cells := []string{r.Name, string(r.Action), r.Kind + "/" + r.Target, r.By, r.RequestedBy, printer.FormatDuration(now.Sub(r.RequestedAt))}
		if namespaces {
			cells = append([]string{r.Namespace}, cells...)
		}
		if decided {
			cells = append(cells, string(r.Decision))
		}
		table.Rows = append(table.Rows, append(cells, r.Reason))
	}
	return table.Write(output)
}

// DescribeExtensionRequest is what an Extension asks for, in a few words that are fit for a terminal.
func DescribeExtensionRequest(extension *v1alpha1.Extension) string {
	spec := &extension.Spec
	what := spec.Target.Kind + " " + printer.Sanitize(spec.Target.Name)
	switch {
	case spec.By != nil:
		return fmt.Sprintf("%s more for %s", spec.By, what)
	case spec.Action == v1alpha1.ActionDelete:
		return "the deletion of " + what
	default:
		return "the renewal of " + what
	}
}

// DescribeExtensionOutcome is what became of an Extension, in a line that is fit for a terminal;
// times in zone.
func DescribeExtensionOutcome(extension *v1alpha1.Extension, zone *time.Location) string {
	status := &extension.Status
	var text string
	switch status.Decision {
	case v1alpha1.ExtensionApproved:
		text = "approved"
	case v1alpha1.ExtensionDenied:
		text = "refused"
	default:
		waits := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApplied)
		if waits == nil || waits.Message == "" {
			return "not decided yet"
		}
		return "not decided yet: " + printer.Sanitize(waits.Message)
	}
	if status.DecidedBy != "" {
		text += " by " + printer.Sanitize(status.DecidedBy)
	}
	if status.Message != "" {
		text += ": " + printer.Sanitize(status.Message)
	}
	applied := appliedCondition(extension)
	switch {
	case status.NewEnd != nil:
		text += fmt.Sprintf("; %s %s ends %s", extension.Spec.Target.Kind, printer.Sanitize(extension.Spec.Target.Name), printer.FormatMinute(status.NewEnd.Time, zone))
	case status.Decision == v1alpha1.ExtensionApproved && applied != nil && applied.Message != "":
		text += "; " + printer.Sanitize(applied.Message)
	}
	return text
}
