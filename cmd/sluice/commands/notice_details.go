// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	noticemail "sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/outbox"
)

// NoticeRow is a Notice as it is shown.
type NoticeRow struct {
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

// NewNoticeRow is a Notice's row.
func NewNoticeRow(n *v1alpha1.Notice) NoticeRow {
	spec, status := &n.Spec, &n.Status
	row := NoticeRow{
		Name: n.Name, Kind: spec.Kind, Project: noticeProject(n), Recipient: string(spec.Recipient.Email), DueAt: spec.DueAt.UTC(),
		Deadline: utcTimeOrNil(spec.Deadline), Digest: spec.Digest, Phase: noticePhase(n), Attempts: status.Attempts,
		SentAt: utcTimeOrNil(status.SentAt), RetryAt: utcTimeOrNil(status.RetryAt), MessageID: status.MessageID, LastError: status.LastError,
	}
	if spec.Subject != nil {
		row.Subject, row.Namespace = spec.Subject.Kind+"/"+spec.Subject.Name, spec.Subject.Namespace
	}
	return row
}

// noticePhase is where it is; nobody has looked at it where the field is empty.
func noticePhase(n *v1alpha1.Notice) v1alpha1.NoticePhase {
	return cmp.Or(n.Status.Phase, v1alpha1.NoticePending)
}

// noticeProject is the project that a Notice is about; empty for a department's, and for
// digests.
func noticeProject(n *v1alpha1.Notice) string {
	if s := n.Spec.Subject; s != nil && s.Kind == "Project" {
		return s.Name
	}
	return n.Spec.Inputs[noticemail.InputProject]
}

func utcTimeOrNil(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}

// maxErrorInTable is as much of an error as a table has room for, in characters.
const maxErrorInTable = 60

// WriteNoticeTable prints rows for a person, times in zone.
func WriteNoticeTable(output io.Writer, rows []NoticeRow, zone *time.Location) error {
	table := printer.Table{Headers: []string{"NAME", "DUE", "KIND", "SUBJECT", "RECIPIENT", "PHASE", "TRIES", "ERROR"}, Right: []string{"TRIES"}}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{
			r.Name, printer.FormatMinute(r.DueAt, zone), string(r.Kind), r.Subject, r.Recipient, string(r.Phase),
			strconv.Itoa(int(r.Attempts)), truncateError(r.LastError),
		})
	}
	return table.Write(output)
}

func truncateError(text string) string {
	if utf8.RuneCountInString(text) <= maxErrorInTable {
		return text
	}
	return string([]rune(text)[:maxErrorInTable-1]) + "…"
}

// NoticeDetails is a Notice with its mail.
type NoticeDetails struct {
	NoticeRow
	// RecipientName, Language and TimeZone are the recipient's.
	RecipientName string            `json:"recipientName,omitempty"`
	Language      v1alpha1.Language `json:"language"`
	TimeZone      string            `json:"timeZone"`
	// Lead is how long before the deadline it was due.
	Lead string `json:"lead,omitempty"`
	// Carries are the Notices that a digest carries.
	Carries []string `json:"carries,omitempty"`
	// ClaimedBy is who sent it last, or is sending it; ClaimedAt, machine time, is since
	// when.
	ClaimedBy string     `json:"claimedBy,omitempty"`
	ClaimedAt *time.Time `json:"claimedAt,omitempty"`
	// Inputs are what the text is made of besides.
	Inputs map[string]string `json:"inputs,omitempty"`
	// MailSubject and MailText are its mail in Sluice's own words; Problem is why there
	// is none.
	MailSubject string `json:"mailSubject,omitempty"`
	MailText    string `json:"mailText,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

// unknownSenderDomain stands for the sender's, which lifecycle's configuration knows alone.
const unknownSenderDomain = "sender.invalid"

// GetNoticeDetails reads one Notice, and writes its mail again from what was recorded.
func GetNoticeDetails(ctx context.Context, c client.Reader, name string) (*NoticeDetails, error) {
	n, err := getNotice(ctx, c, name)
	if err != nil {
		return nil, err
	}
	shown := &NoticeDetails{
		NoticeRow: NewNoticeRow(n), RecipientName: string(n.Spec.Recipient.Name), Language: n.Spec.Recipient.Language, TimeZone: n.Spec.Recipient.TimeZone,
		Carries: outbox.CarriedNotices(n), ClaimedBy: n.Status.ClaimedBy, ClaimedAt: utcTimeOrNil(n.Status.ClaimedAt), Inputs: n.Spec.Inputs,
	}
	if n.Spec.Lead != nil {
		shown.Lead = n.Spec.Lead.String()
	}
	letter, err := newNoticeLetter(ctx, c, n, shown.Carries)
	if err != nil {
		return nil, err
	}
	if m, err := noticemail.Compose(letter); err == nil {
		shown.MailSubject, shown.MailText = m.Subject, m.Text
	} else {
		shown.Problem = "its mail cannot be written: " + err.Error()
	}
	return shown, nil
}

func getNotice(ctx context.Context, c client.Reader, name string) (*v1alpha1.Notice, error) {
	n := &v1alpha1.Notice{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no notice %s; `sluice notices list` lists those that there are", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading notice %s: %w%s", name, err, noticeAccessHint(err, "get and list notices"))
	}
	return n, nil
}

func newNoticeLetter(ctx context.Context, c client.Reader, n *v1alpha1.Notice, carries []string) (noticemail.ComposeRequest, error) {
	domain := unknownSenderDomain
	if at := strings.LastIndexByte(n.Status.MessageID, '@'); at >= 0 {
		domain = strings.TrimSuffix(n.Status.MessageID[at+1:], ">")
	}
	letter := noticemail.ComposeRequest{Notice: n, From: mail.Address{Name: "Sluice", Address: "sluice@" + domain}, Domain: domain}
	for _, name := range carries {
		carried, err := getNotice(ctx, c, name)
		if err == nil {
			letter.Carried = append(letter.Carried, carried)
		} else if ctx.Err() != nil {
			return letter, err
		}
	}
	if k := n.Spec.Kind; k == v1alpha1.NoticeProjectDeleted || k == v1alpha1.NoticeProjectRenewed {
		all, err := listAllNotices(ctx, c)
		if err != nil {
			return letter, err
		}
		letter.Canceled = outbox.IsCancellation(n, all)
	}
	return letter, nil
}

// Text prints all of it for a person: what is policy time in the recipient's zone.
func (s *NoticeDetails) Text(machine *time.Location) string {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil || s.TimeZone == "" || s.TimeZone == "Local" {
		zone = time.UTC
	}
	var text strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s%s\n", name+":", printer.Sanitize(value))
		}
	}
	at := func(name string, at *time.Time, zone *time.Location) {
		if at != nil {
			line(name, printer.FormatSecond(*at, zone))
		}
	}
	line("Notice", s.Name)
	line("Kind", string(s.Kind))
	subject := s.Subject
	if s.Namespace != "" {
		subject += " in namespace " + s.Namespace
	}
	line("Subject", subject)
	line("Project", s.Project)
	line("Recipient", strings.TrimSpace(fmt.Sprintf("%s <%s>, %s, %s", s.RecipientName, s.Recipient, s.Language, s.TimeZone)))
	at("Due", &s.DueAt, zone)
	at("Deadline", s.Deadline, zone)
	line("Lead", s.Lead)
	line("Digest", s.Digest)
	line("Carries", strings.Join(s.Carries, ", "))
	line("Phase", string(s.Phase)+", "+s.attemptsText())
	at("Sent", s.SentAt, zone)
	at("Next try", s.RetryAt, machine)
	at("Last try", s.ClaimedAt, machine)
	line("Message-ID", s.MessageID)
	line("Error", s.LastError)
	line("Problem", s.Problem)
	if s.Problem == "" {
		fmt.Fprintf(&text, "\nIts mail in Sluice's own words; the address for questions is lifecycle's to know:\n\n")
		line("Subject", s.MailSubject)
		fmt.Fprintf(&text, "\n%s", printer.SanitizeLines(s.MailText))
	}
	return text.String()
}

// attemptsText is how often it was tried. One that failed for no fault of the mail's own is
// not counted.
func (s *NoticeDetails) attemptsText() string {
	switch {
	case s.Attempts == 0 && s.ClaimedAt != nil:
		return "no try counts"
	case s.Attempts == 0:
		return "not tried"
	case s.Attempts == 1:
		return "tried once"
	}
	return fmt.Sprintf("tried %d times", s.Attempts)
}
