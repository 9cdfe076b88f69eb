// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	noticemail "sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/outbox"
)

// noticeRow is a Notice as the commands print it.
type noticeRow struct {
	Name string              `json:"name"`
	Kind v1alpha1.NoticeKind `json:"kind"`
	// Subject is Kind/name of the object that the notice is about, and Namespace its
	// namespace. A digest has none.
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
	// RetryAt is real time.
	RetryAt   *time.Time `json:"retryAt,omitempty"`
	MessageID string     `json:"messageID,omitempty"`
	LastError string     `json:"lastError,omitempty"`
}

func newNoticeRow(n *v1alpha1.Notice) noticeRow {
	spec, status := &n.Spec, &n.Status
	row := noticeRow{
		Name: n.Name, Kind: spec.Kind, Project: noticeProject(n), Recipient: string(spec.Recipient.Email), Digest: spec.Digest,
		DueAt: spec.DueAt.UTC(), Deadline: optionalTime(spec.Deadline), Phase: noticePhase(n), Attempts: status.Attempts,
		SentAt: optionalTime(status.SentAt), RetryAt: optionalTime(status.RetryAt), MessageID: status.MessageID, LastError: status.LastError,
	}
	if spec.Subject != nil {
		row.Subject, row.Namespace = spec.Subject.Kind+"/"+spec.Subject.Name, spec.Subject.Namespace
	}
	return row
}

// noticePhase returns the phase of a notice, Pending if lifecycle set none yet.
func noticePhase(n *v1alpha1.Notice) v1alpha1.NoticePhase {
	return cmp.Or(n.Status.Phase, v1alpha1.NoticePending)
}

// noticeProject returns the project that a notice is about. It is empty for a
// digest and for a department's notice.
func noticeProject(n *v1alpha1.Notice) string {
	if s := n.Spec.Subject; s != nil && s.Kind == "Project" {
		return s.Name
	}
	return n.Spec.Inputs[noticemail.InputProject]
}

// maxErrorInTable limits the characters of an error in a table.
const maxErrorInTable = 60

// noticeTable returns the table of rows, with times in zone.
func noticeTable(rows []noticeRow, zone *time.Location) printer.Table {
	table := printer.Table{Columns: append(printer.Columns("NAME", "DUE", "KIND", "SUBJECT", "RECIPIENT", "PHASE", "ATTEMPTS", "ERROR"),
		printer.Column{Name: "PROJECT", Wide: true}, printer.Column{Name: "SENT", Wide: true})}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{
			r.Name, printer.FormatMinute(r.DueAt, zone), string(r.Kind), r.Subject, r.Recipient, string(r.Phase),
			strconv.Itoa(int(r.Attempts)), truncateError(r.LastError), r.Project, formatOptionalMinute(r.SentAt, zone),
		})
	}
	return table
}

func truncateError(text string) string {
	if utf8.RuneCountInString(text) <= maxErrorInTable {
		return text
	}
	return string([]rune(text)[:maxErrorInTable-1]) + "…"
}

// noticeDetails is a Notice with its mail.
type noticeDetails struct {
	noticeRow
	// RecipientName, Language and TimeZone are the recipient's.
	RecipientName string            `json:"recipientName,omitempty"`
	Language      v1alpha1.Language `json:"language"`
	TimeZone      string            `json:"timeZone"`
	// Lead is the time between due time and deadline.
	Lead string `json:"lead,omitempty"`
	// Notices are the Notices of a digest.
	Notices []string `json:"notices,omitempty"`
	// ClaimedBy is the process that made the last attempt, and ClaimedAt its real
	// time.
	ClaimedBy string     `json:"claimedBy,omitempty"`
	ClaimedAt *time.Time `json:"claimedAt,omitempty"`
	// Inputs are the other inputs of the text.
	Inputs map[string]string `json:"inputs,omitempty"`
	// MailSubject and MailText are the mail in Sluice's own words. Problem is set if
	// the mail cannot be composed.
	MailSubject string `json:"mailSubject,omitempty"`
	MailText    string `json:"mailText,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

// unknownSenderDomain replaces the sender's domain, which only lifecycle's
// configuration has.
const unknownSenderDomain = "sender.invalid"

// getNoticeDetails gets a Notice and composes its mail from the recorded inputs.
func getNoticeDetails(ctx context.Context, c client.Reader, name string) (*noticeDetails, error) {
	n, err := getNotice(ctx, c, name)
	if err != nil {
		return nil, err
	}
	details := &noticeDetails{
		noticeRow: newNoticeRow(n), RecipientName: string(n.Spec.Recipient.Name),
		Language: n.Spec.Recipient.Language, TimeZone: n.Spec.Recipient.TimeZone, Notices: outbox.CarriedNotices(n),
		ClaimedBy: n.Status.ClaimedBy, ClaimedAt: optionalTime(n.Status.ClaimedAt), Inputs: n.Spec.Inputs,
	}
	if n.Spec.Lead != nil {
		details.Lead = n.Spec.Lead.String()
	}
	request, err := newComposeRequest(ctx, c, n, details.Notices)
	if err != nil {
		return nil, err
	}
	if m, err := noticemail.Compose(request); err == nil {
		details.MailSubject, details.MailText = m.Subject, m.Text
	} else {
		details.Problem = "compose mail: " + err.Error()
	}
	return details, nil
}

func newComposeRequest(ctx context.Context, c client.Reader, n *v1alpha1.Notice, carries []string) (noticemail.ComposeRequest, error) {
	domain := unknownSenderDomain
	if at := strings.LastIndexByte(n.Status.MessageID, '@'); at >= 0 {
		domain = strings.TrimSuffix(n.Status.MessageID[at+1:], ">")
	}
	request := noticemail.ComposeRequest{Notice: n, From: mail.Address{Name: "Sluice", Address: "sluice@" + domain}, Domain: domain}
	for _, name := range carries {
		carried, err := getNotice(ctx, c, name)
		if err == nil {
			request.Carried = append(request.Carried, carried)
		} else if ctx.Err() != nil {
			return request, err
		}
	}
	if k := n.Spec.Kind; k == v1alpha1.NoticeProjectDeleted || k == v1alpha1.NoticeProjectRenewed {
		all, err := listAllNotices(ctx, c)
		if err != nil {
			return request, err
		}
		request.Canceled = outbox.IsCancellation(n, all)
	}
	return request, nil
}

// text returns all details as text: policy time in the recipient's zone, real time
// in the user's.
func (d *noticeDetails) text(local *time.Location) string {
	zone, err := time.LoadLocation(d.TimeZone)
	if err != nil || d.TimeZone == "" || d.TimeZone == "Local" {
		zone = time.UTC
	}
	var text printer.FieldList
	text.Add("Notice", d.Name)
	text.Add("Kind", string(d.Kind))
	subject := d.Subject
	if d.Namespace != "" {
		subject += inNamespace(d.Namespace)
	}
	text.Add("Subject", subject)
	text.Add("Project", d.Project)
	text.Add("Recipient", strings.TrimSpace(fmt.Sprintf("%s <%s>, %s, %s", d.RecipientName, d.Recipient, d.Language, d.TimeZone)))
	text.AddTime("Due", &d.DueAt, zone)
	text.AddTime("Deadline", d.Deadline, zone)
	text.Add("Lead", d.Lead)
	text.Add("Digest", d.Digest)
	text.Add("Notices", strings.Join(d.Notices, ", "))
	text.Add("Phase", string(d.Phase)+", "+d.attemptsText())
	text.AddTime("Sent", d.SentAt, zone)
	text.AddTime("Next try", d.RetryAt, local)
	text.AddTime("Last try", d.ClaimedAt, local)
	text.Add("Message-ID", d.MessageID)
	text.Add("Error", d.LastError)
	text.Add("Problem", d.Problem)
	if d.Problem == "" {
		text.WriteString("\nIts mail with Sluice's own texts. Only lifecycle knows the address for questions:\n\n")
		text.Add("Subject", d.MailSubject)
		text.WriteString("\n" + printer.SanitizeLines(d.MailText))
	}
	return text.String()
}

// attemptsText returns the number of attempts. An attempt that failed because of
// the mail server's configuration does not count.
func (d *noticeDetails) attemptsText() string {
	switch {
	case d.Attempts == 0 && d.ClaimedAt != nil:
		return "no attempt counts"
	case d.Attempts == 0:
		return "not attempted"
	case d.Attempts == 1:
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", d.Attempts)
}
