// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"cmp"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/lifecycle/notices/message"
)

// Row is a Notice as it is shown.
type Row struct {
	Name string              `json:"name"`
	Kind v1alpha1.NoticeKind `json:"kind"`
	// Subject is Kind/name of what it speaks of, and Namespace where that is; empty for
	// a digest.
	Subject   string `json:"subject,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Project   string `json:"project,omitempty"`
	Recipient string `json:"recipient"`
	// DueAt, Deadline and SentAt are policy time.
	DueAt    time.Time            `json:"dueAt"`
	Deadline *time.Time           `json:"deadline,omitempty"`
	Digest   string               `json:"digest,omitempty"`
	Phase    v1alpha1.NoticePhase `json:"phase"`
	Attempts int32                `json:"attempts"`
	SentAt   *time.Time           `json:"sentAt,omitempty"`
	// RetryAt is machine time.
	RetryAt   *time.Time `json:"retryAt,omitempty"`
	MessageID string     `json:"messageID,omitempty"`
	LastError string     `json:"lastError,omitempty"`
}

// RowOf is a Notice's row.
func RowOf(n *v1alpha1.Notice) Row {
	spec, status := &n.Spec, &n.Status
	row := Row{
		Name: n.Name, Kind: spec.Kind, Project: projectOf(n), Recipient: string(spec.Recipient.Email), DueAt: spec.DueAt.UTC(),
		Deadline: instant(spec.Deadline), Digest: spec.Digest, Phase: phaseOf(n), Attempts: status.Attempts,
		SentAt: instant(status.SentAt), RetryAt: instant(status.RetryAt), MessageID: status.MessageID, LastError: status.LastError,
	}
	if spec.Subject != nil {
		row.Subject, row.Namespace = spec.Subject.Kind+"/"+spec.Subject.Name, spec.Subject.Namespace
	}
	return row
}

// phaseOf is where it is; nobody has looked at it where the field is empty.
func phaseOf(n *v1alpha1.Notice) v1alpha1.NoticePhase {
	return cmp.Or(n.Status.Phase, v1alpha1.NoticePending)
}

// projectOf is the project that a Notice is about; empty for a department's, and for
// digests.
func projectOf(n *v1alpha1.Notice) string {
	if s := n.Spec.Subject; s != nil && s.Kind == "Project" {
		return s.Name
	}
	return n.Spec.Inputs[message.InputProject]
}

func instant(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}

// shortError is as much of an error as a table has room for, in characters.
const shortError = 60

// Table prints rows for a person, times in zone.
func Table(output io.Writer, rows []Row, zone *time.Location) error {
	table := show.Table{Headers: []string{"NAME", "DUE", "KIND", "SUBJECT", "RECIPIENT", "PHASE", "TRIES", "ERROR"}, Right: []string{"TRIES"}}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{
			r.Name, show.Instant(r.DueAt, zone), string(r.Kind), r.Subject, r.Recipient, string(r.Phase),
			strconv.Itoa(int(r.Attempts)), shortened(r.LastError),
		})
	}
	return table.Write(output)
}

func shortened(text string) string {
	if utf8.RuneCountInString(text) <= shortError {
		return text
	}
	return string([]rune(text)[:shortError-1]) + "…"
}
