// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
)

// Row is an Extension as it is shown.
type Row struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Action    v1alpha1.ExtensionAction `json:"action"`
	// Kind and Target are the object's for which something is asked.
	Kind   string `json:"kind"`
	Target string `json:"target"`
	// By is how much more time is asked for.
	By string `json:"by,omitempty"`
	// AskedBy is the user who asked, as admission recorded it.
	AskedBy   string                     `json:"askedBy,omitempty"`
	AskedAt   time.Time                  `json:"askedAt"`
	Reason    string                     `json:"reason"`
	Decision  v1alpha1.ExtensionDecision `json:"decision,omitempty"`
	DecidedBy string                     `json:"decidedBy,omitempty"`
	Message   string                     `json:"message,omitempty"`
	// NewEnd is the end that holds since it was carried out.
	NewEnd *time.Time `json:"newEnd,omitempty"`
}

// RowOf is an Extension's row.
func RowOf(extension *v1alpha1.Extension) Row {
	spec, status := &extension.Spec, &extension.Status
	row := Row{
		Namespace: extension.Namespace, Name: extension.Name,
		Action: spec.Action, Kind: spec.Target.Kind, Target: spec.Target.Name,
		AskedBy: extension.Annotations[v1alpha1.AnnotationCreatedBy], AskedAt: extension.CreationTimestamp.UTC(), Reason: spec.Reason,
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

// Table prints rows for a person, as of the instant now of machine time. With
// namespaces it has a column for them, with decided one for the decision.
func Table(output io.Writer, rows []Row, namespaces, decided bool, now time.Time) error {
	table := show.Table{Headers: []string{"NAME", "ACTION", "TARGET", "BY", "ASKED BY", "AGE"}}
	if namespaces {
		table.Headers = append([]string{"NAMESPACE"}, table.Headers...)
	}
	if decided {
		table.Headers = append(table.Headers, "DECISION")
	}
	table.Headers = append(table.Headers, "REASON")
	for _, r := range rows {
		cells := []string{r.Name, string(r.Action), r.Kind + "/" + r.Target, r.By, r.AskedBy, show.Span(now.Sub(r.AskedAt))}
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

// Wish is what an Extension asks for, in a few words that are fit for a terminal.
func Wish(extension *v1alpha1.Extension) string {
	spec := &extension.Spec
	what := spec.Target.Kind + " " + show.Clean(spec.Target.Name)
	switch {
	case spec.By != nil:
		return fmt.Sprintf("%s more for %s", spec.By, what)
	case spec.Action == v1alpha1.ActionDelete:
		return "the deletion of " + what
	default:
		return "the renewal of " + what
	}
}

// Outcome is what became of an Extension, in a line that is fit for a terminal;
// times in zone.
func Outcome(extension *v1alpha1.Extension, zone *time.Location) string {
	status := &extension.Status
	var text string
	switch status.Decision {
	case v1alpha1.ExtensionApproved:
		text = "approved"
	case v1alpha1.ExtensionRefused:
		text = "refused"
	default:
		waits := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApplied)
		if waits == nil || waits.Message == "" {
			return "not decided yet"
		}
		return "not decided yet: " + show.Clean(waits.Message)
	}
	if status.DecidedBy != "" {
		text += " by " + show.Clean(status.DecidedBy)
	}
	if status.Message != "" {
		text += ": " + show.Clean(status.Message)
	}
	applied := carriedOut(extension)
	switch {
	case status.NewEnd != nil:
		text += fmt.Sprintf("; %s %s ends %s", extension.Spec.Target.Kind, show.Clean(extension.Spec.Target.Name), show.Instant(status.NewEnd.Time, zone))
	case status.Decision == v1alpha1.ExtensionApproved && applied != nil && applied.Message != "":
		text += "; " + show.Clean(applied.Message)
	}
	return text
}
