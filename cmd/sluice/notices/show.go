// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"context"
	"fmt"
	"net/mail"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/lifecycle/notices/message"
	"sluice.dev/lifecycle/notices/outbox"
)

// Shown is a Notice with its mail.
type Shown struct {
	Row
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

// unknownDomain stands for the sender's, which lifecycle's configuration knows alone.
const unknownDomain = "sender.invalid"

// Show reads one Notice, and writes its mail again from what was recorded.
func Show(ctx context.Context, c client.Reader, name string) (*Shown, error) {
	n, err := get(ctx, c, name)
	if err != nil {
		return nil, err
	}
	shown := &Shown{
		Row: RowOf(n), RecipientName: string(n.Spec.Recipient.Name), Language: n.Spec.Recipient.Language, TimeZone: n.Spec.Recipient.TimeZone,
		Carries: outbox.Carried(n), ClaimedBy: n.Status.ClaimedBy, ClaimedAt: instant(n.Status.ClaimedAt), Inputs: n.Spec.Inputs,
	}
	if n.Spec.Lead != nil {
		shown.Lead = n.Spec.Lead.String()
	}
	letter, err := letterOf(ctx, c, n, shown.Carries)
	if err != nil {
		return nil, err
	}
	if m, err := message.Compose(letter); err == nil {
		shown.MailSubject, shown.MailText = m.Subject, m.Text
	} else {
		shown.Problem = "its mail cannot be written: " + err.Error()
	}
	return shown, nil
}

func get(ctx context.Context, c client.Reader, name string) (*v1alpha1.Notice, error) {
	n := &v1alpha1.Notice{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no notice %s; `sluice notices list` lists those that there are", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading notice %s: %w%s", name, err, whoMay(err, "get and list notices"))
	}
	return n, nil
}

func letterOf(ctx context.Context, c client.Reader, n *v1alpha1.Notice, carries []string) (message.Letter, error) {
	domain := unknownDomain
	if at := strings.LastIndexByte(n.Status.MessageID, '@'); at >= 0 {
		domain = strings.TrimSuffix(n.Status.MessageID[at+1:], ">")
	}
	letter := message.Letter{Notice: n, From: mail.Address{Name: "Sluice", Address: "sluice@" + domain}, Domain: domain}
	for _, name := range carries {
		carried, err := get(ctx, c, name)
		if err == nil {
			letter.Carried = append(letter.Carried, carried)
		} else if ctx.Err() != nil {
			return letter, err
		}
	}
	if k := n.Spec.Kind; k == v1alpha1.NoticeProjectDeleted || k == v1alpha1.NoticeProjectRenewed {
		all, err := read(ctx, c)
		if err != nil {
			return letter, err
		}
		letter.Cancelled = outbox.Cancelled(n, all)
	}
	return letter, nil
}

// Text prints all of it for a person: what is policy time in the recipient's zone.
func (s *Shown) Text(machine *time.Location) string {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil || s.TimeZone == "" || s.TimeZone == "Local" {
		zone = time.UTC
	}
	var text strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s%s\n", name+":", show.Clean(value))
		}
	}
	at := func(name string, at *time.Time, zone *time.Location) {
		if at != nil {
			line(name, show.Second(*at, zone))
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
	line("Phase", string(s.Phase)+", "+s.tries())
	at("Sent", s.SentAt, zone)
	at("Next try", s.RetryAt, machine)
	at("Last try", s.ClaimedAt, machine)
	line("Message-ID", s.MessageID)
	line("Error", s.LastError)
	line("Problem", s.Problem)
	if s.Problem == "" {
		fmt.Fprintf(&text, "\nIts mail in Sluice's own words; the address for questions is lifecycle's to know:\n\n")
		line("Subject", s.MailSubject)
		fmt.Fprintf(&text, "\n%s", show.CleanLines(s.MailText))
	}
	return text.String()
}

// tries is how often it was tried. One that failed for no fault of the mail's own is
// not counted.
func (s *Shown) tries() string {
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
