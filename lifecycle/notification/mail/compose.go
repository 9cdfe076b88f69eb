// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// ComposeRequest is the input of a mail.
type ComposeRequest struct {
	// Notice is the message; its status is not read.
	Notice *v1alpha1.Notice
	// Carried holds the Notices in a Digest; empty for other kinds.
	Carried []*v1alpha1.Notice
	// Now is when the mail is sent, in policy time: durations such as "in 4 hours" count from it.
	// Zero means when the Notice was recorded.
	Now time.Time
	// From is the sender that the mail shows.
	From mail.Address
	// ReplyTo is the address for replies and questions; empty means From.
	ReplyTo string
	// Domain is the domain of Message-IDs.
	Domain string
	// Sequence rises with each change of the subject's deadline, so calendars keep the latest.
	Sequence int
	// Sequences holds the same for the Notices in a Digest, by name.
	Sequences map[string]int
	// Canceled removes the subject's appointment from the recipient's calendar.
	Canceled bool
	// Templates holds the texts; nil means the built-in ones.
	Templates *Templates
}

// Message is a complete mail.
type Message struct {
	// MessageID is the Message-ID with angle brackets.
	MessageID string
	// Subject is the decoded subject.
	Subject string
	// Bytes holds the complete mail, with lines of at most 998 bytes that end with CRLF.
	Bytes []byte
	// Text and HTML are its bodies, with LF line breaks.
	Text, HTML string
}

// kindsWithoutSubject holds the kinds without a subject object. A Digest carries all other kinds.
var (
	kindsWithoutSubject = map[v1alpha1.NoticeKind]bool{v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true}
	kindsNeverInDigest  = map[v1alpha1.NoticeKind]bool{
		v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true, v1alpha1.NoticeWeeklySummary: true,
	}
)

// kindsWithDeadline holds the kinds that require a deadline.
var kindsWithDeadline = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeWorkloadEnding: true, v1alpha1.NoticeWorkloadIdle: true, v1alpha1.NoticePreemption: true,
	v1alpha1.NoticeProjectExpiring: true, v1alpha1.NoticeProjectSuspending: true, v1alpha1.NoticeProjectConfirm: true,
}

var domainPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

const (
	maxDomainLength = 200 // with the hash before it, a Message-ID fits into a Notice's status
	maxSubjectRunes = 200
)

// Compose renders the mail. Its error names the invalid part of the request or the failed
// template.
func Compose(l ComposeRequest) (*Message, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	l.Carried = sortByDeadline(l.Carried)
	if l.Notice.Spec.Kind == v1alpha1.NoticeTest {
		l.Notice = stripTestNotice(l.Notice)
	}
	page, err := l.templateData(true)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	m := &Message{MessageID: MessageID(l.Notice, l.Domain)}
	if m.Subject, err = l.Templates.renderSubject(page); err != nil {
		return nil, err
	}
	page.Subject = m.Subject
	if m.Text, err = l.Templates.renderText(page); err != nil {
		return nil, err
	}
	if m.HTML, err = l.Templates.renderHTML(page); err != nil {
		return nil, err
	}
	// A calendar keeps its entry for days, so it has no durations from now.
	entry, err := l.templateData(false)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	if m.Bytes, err = encode(l, m, l.renderCalendar(entry)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	return m, nil
}

// validate checks the request.
func (l ComposeRequest) validate() error {
	if l.Notice == nil {
		return fmt.Errorf("the request has no notice")
	}
	spec := &l.Notice.Spec
	name := l.Notice.Name
	if _, ok := noticeContents()[contentKey{spec.Kind, v1alpha1.LanguageEnglish}]; !ok {
		return fmt.Errorf("notice %s: spec.kind: there is no text for %q", name, spec.Kind)
	}
	if kindsWithDeadline[spec.Kind] && spec.Deadline == nil {
		return fmt.Errorf("notice %s: spec.deadline: a %s warns of one; it has none", name, spec.Kind)
	}
	if !kindsWithoutSubject[spec.Kind] && spec.Subject == nil {
		return fmt.Errorf("notice %s: spec.subject: a %s speaks of an object; it names none", name, spec.Kind)
	}
	if spec.Kind == v1alpha1.NoticeDigest && len(l.Carried) == 0 {
		return fmt.Errorf("notice %s: a digest that carries nothing", name)
	}
	for _, n := range l.Carried {
		if spec.Kind != v1alpha1.NoticeDigest || n == nil || n.Spec.Subject == nil || kindsWithDeadline[n.Spec.Kind] && n.Spec.Deadline == nil ||
			kindsNeverInDigest[n.Spec.Kind] {
			return fmt.Errorf(
				"notice %s: it is a Digest that carries Notices, and each of these needs a subject, and a deadline if its kind has one", name,
			)
		}
	}
	for field, value := range map[string]v1alpha1.EmailAddress{
		"spec.recipient.email": spec.Recipient.Email, "from": v1alpha1.EmailAddress(l.From.Address), "replyTo": v1alpha1.EmailAddress(l.ReplyTo),
	} {
		if field == "replyTo" && value == "" {
			continue
		}
		if !value.IsValid() {
			return fmt.Errorf(
				"notice %s: %s: %q is not one plain mail address such as anna.mueller@example.org", name, field,
				truncate(sanitize(string(value)), maxNameRunes),
			)
		}
	}
	if len(l.Domain) > maxDomainLength || !domainPattern.MatchString(l.Domain) {
		return fmt.Errorf(
			"notice %s: domain: %q is not the name of a domain such as gpu.example.org", name, truncate(sanitize(l.Domain), maxNameRunes),
		)
	}
	return nil
}

// stripTestNotice returns a Test without user-provided content.
func stripTestNotice(test *v1alpha1.Notice) *v1alpha1.Notice {
	n := test.DeepCopy()
	n.Spec.Inputs, n.Spec.Subject, n.Spec.Deadline, n.Spec.Lead, n.Spec.Recipient.Name = nil, nil, nil, nil, ""
	return n
}

// sortByDeadline sorts the Notices of a Digest by deadline; those without one come last.
func sortByDeadline(carried []*v1alpha1.Notice) []*v1alpha1.Notice {
	return slices.SortedStableFunc(slices.Values(carried), func(a, b *v1alpha1.Notice) int {
		switch x, y := a.Spec.Deadline, b.Spec.Deadline; {
		case x != nil && y != nil && !x.Equal(y):
			return x.Compare(y.Time)
		case x == nil && y != nil:
			return 1
		case x != nil && y == nil:
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// contactAddress returns the address for questions.
func (l ComposeRequest) contactAddress() string {
	if l.ReplyTo != "" {
		return l.ReplyTo
	}
	return l.From.Address
}

// languageOf returns the recipient's language; English for unsupported ones.
func languageOf(n *v1alpha1.Notice) v1alpha1.Language {
	if l := n.Spec.Recipient.Language; l == v1alpha1.LanguageGerman {
		return l
	}
	return v1alpha1.LanguageEnglish
}

// subjectLine sanitizes a rendered text for a header or heading.
func subjectLine(s string) string { return truncate(sanitize(strings.TrimSpace(s)), maxSubjectRunes) }
