// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// ComposeRequest is what a mail is made of.
type ComposeRequest struct {
	// Notice is the message: its spec, name, UID and creation are read, its status is not.
	Notice *v1alpha1.Notice
	// Carried are the Notices that a Digest carries; for other kinds there are none.
	Carried []*v1alpha1.Notice
	// From is the sender that the mail shows.
	From mail.Address
	// ReplyTo is where answers go, and whom the mail names for questions; empty for From.
	ReplyTo string
	// Domain is what stands behind the @ of a Message-ID.
	Domain string
	// Sequence rises with each change of the subject's deadline, so that a calendar
	// takes the latest.
	Sequence int
	// Sequences are the same for what a Digest carries, by the names of these Notices.
	Sequences map[string]int
	// Canceled takes the subject's appointment out of the recipient's calendar.
	Canceled bool
	// Templates are the texts; nil for those that are built in.
	Templates *Templates
}

// Message is a message as it is sent.
type Message struct {
	// MessageID is that of the mail, with its angle brackets.
	MessageID string
	// Subject is the subject as people read it.
	Subject string
	// Bytes are the whole mail. Its lines end in CRLF and none is longer than 998 bytes.
	Bytes []byte
	// Text and HTML are its two bodies, with line feeds alone.
	Text, HTML string
}

// optionalKinds are the kinds that nobody has to read.
var optionalKinds = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeQuotaThreshold: true, v1alpha1.NoticeWeeklySummary: true,
	v1alpha1.NoticeShareExceeded: true, v1alpha1.NoticeProjectRenewed: true,
}

// kindsWithoutSubject are the kinds that speak of no object, and alone those that no Digest
// carries.
var (
	kindsWithoutSubject = map[v1alpha1.NoticeKind]bool{v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true}
	kindsNeverInDigest  = map[v1alpha1.NoticeKind]bool{v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true, v1alpha1.NoticeWeeklySummary: true}
)

// kindsWithDeadline are the kinds that are nothing without a deadline.
var kindsWithDeadline = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeWorkloadEnding: true, v1alpha1.NoticeWorkloadIdle: true, v1alpha1.NoticePreemption: true,
	v1alpha1.NoticeProjectExpiring: true, v1alpha1.NoticeProjectSuspending: true, v1alpha1.NoticeProjectConfirm: true,
}

var (
	addressPattern = regexp.MustCompile(v1alpha1.EmailPattern)
	domainPattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

const (
	maxAddressLength = 254
	maxDomainLength  = 200 // with the hash before it, a Message-ID fits into a Notice's status
	maxSubjectRunes  = 200
)

// Compose writes the mail. An error says which part of the letter is wrong, or which
// replaced template failed.
func Compose(l ComposeRequest) (*Message, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	l.Carried = sortByDeadline(l.Carried)
	if l.Notice.Spec.Kind == v1alpha1.NoticeTest {
		l.Notice = stripTestNotice(l.Notice)
	}
	page, err := l.templateData()
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
	if m.Bytes, err = encode(l, m, l.renderCalendar(page)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	return m, nil
}

// validate finds what no mail can be made of.
func (l ComposeRequest) validate() error {
	if l.Notice == nil {
		return fmt.Errorf("a letter without a notice")
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
		if spec.Kind != v1alpha1.NoticeDigest || n == nil || n.Spec.Subject == nil || kindsWithDeadline[n.Spec.Kind] && n.Spec.Deadline == nil || kindsNeverInDigest[n.Spec.Kind] {
			return fmt.Errorf("notice %s: it is a Digest that carries Notices, and each of these needs a subject, and a deadline if its kind has one", name)
		}
	}
	for field, value := range map[string]string{
		"spec.recipient.email": string(spec.Recipient.Email), "from": l.From.Address, "replyTo": l.ReplyTo,
	} {
		if field == "replyTo" && value == "" {
			continue
		}
		if len(value) > maxAddressLength || !addressPattern.MatchString(value) {
			return fmt.Errorf("notice %s: %s: %q is not one plain mail address such as anna.mueller@example.org", name, field, truncate(sanitize(value), maxNameRunes))
		}
	}
	if len(l.Domain) > maxDomainLength || !domainPattern.MatchString(l.Domain) {
		return fmt.Errorf("notice %s: domain: %q is not the name of a domain such as gpu.example.org", name, truncate(sanitize(l.Domain), maxNameRunes))
	}
	return nil
}

// stripTestNotice is a Test without all that it should not have: none of it is anybody's words.
func stripTestNotice(test *v1alpha1.Notice) *v1alpha1.Notice {
	n := test.DeepCopy()
	n.Spec.Inputs, n.Spec.Subject, n.Spec.Deadline, n.Spec.Lead, n.Spec.Recipient.Name = nil, nil, nil, nil, ""
	return n
}

// sortByDeadline is what a Digest carries, in the order in which it wants attention; what
// has no deadline comes last.
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

// contactAddress is whom the mail names for questions.
func (l ComposeRequest) contactAddress() string {
	if l.ReplyTo != "" {
		return l.ReplyTo
	}
	return l.From.Address
}

// languageOf is the recipient's; English where it is none that Sluice writes.
func languageOf(n *v1alpha1.Notice) v1alpha1.Language {
	if l := n.Spec.Recipient.Language; l == v1alpha1.LanguageGerman {
		return l
	}
	return v1alpha1.LanguageEnglish
}

// singleLine is a rendered text as a header or a heading shows it.
func singleLine(s string) string { return truncate(sanitize(strings.TrimSpace(s)), maxSubjectRunes) }
