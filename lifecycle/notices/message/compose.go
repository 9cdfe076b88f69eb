// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

var (
	address = regexp.MustCompile(v1alpha1.EmailPattern)
	domain  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

const (
	longestAddress = 254
	longestDomain  = 200 // with the hash before it, a Message-ID fits into a Notice's status
	longestSubject = 200
)

// Compose writes the mail. An error says which part of the letter is wrong, or which
// replaced template failed.
func Compose(l Letter) (*Mail, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	l.Carried = byDeadline(l.Carried)
	if l.Notice.Spec.Kind == v1alpha1.NoticeTest {
		l.Notice = bare(l.Notice)
	}
	page, err := l.page()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	m := &Mail{MessageID: MessageID(l.Notice, l.Domain)}
	if m.Subject, err = l.Templates.subject(page); err != nil {
		return nil, err
	}
	page.Subject = m.Subject
	if m.Text, err = l.Templates.text(page); err != nil {
		return nil, err
	}
	if m.HTML, err = l.Templates.html(page); err != nil {
		return nil, err
	}
	if m.Bytes, err = encode(l, m, l.events(page)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.Notice.Name, err)
	}
	return m, nil
}

// validate finds what no mail can be made of.
func (l Letter) validate() error {
	if l.Notice == nil {
		return fmt.Errorf("a letter without a notice")
	}
	spec := &l.Notice.Spec
	name := l.Notice.Name
	if _, ok := contents()[contentKey{spec.Kind, v1alpha1.LanguageEnglish}]; !ok {
		return fmt.Errorf("notice %s: spec.kind: there is no text for %q", name, spec.Kind)
	}
	if dated[spec.Kind] && spec.Deadline == nil {
		return fmt.Errorf("notice %s: spec.deadline: a %s warns of one; it has none", name, spec.Kind)
	}
	if !unnamed[spec.Kind] && spec.Subject == nil {
		return fmt.Errorf("notice %s: spec.subject: a %s speaks of an object; it names none", name, spec.Kind)
	}
	if spec.Kind == v1alpha1.NoticeDigest && len(l.Carried) == 0 {
		return fmt.Errorf("notice %s: a digest that carries nothing", name)
	}
	for _, n := range l.Carried {
		if spec.Kind != v1alpha1.NoticeDigest || n == nil || n.Spec.Subject == nil || dated[n.Spec.Kind] && n.Spec.Deadline == nil || alone[n.Spec.Kind] {
			return fmt.Errorf("notice %s: it is a Digest that carries Notices, and each of these needs a subject, and a deadline if its kind has one", name)
		}
	}
	for field, value := range map[string]string{
		"spec.recipient.email": string(spec.Recipient.Email), "from": l.From.Address, "replyTo": l.ReplyTo,
	} {
		if field == "replyTo" && value == "" {
			continue
		}
		if len(value) > longestAddress || !address.MatchString(value) {
			return fmt.Errorf("notice %s: %s: %q is not one plain mail address such as anna.mueller@example.org", name, field, shorten(clean(value), nameLength))
		}
	}
	if len(l.Domain) > longestDomain || !domain.MatchString(l.Domain) {
		return fmt.Errorf("notice %s: domain: %q is not the name of a domain such as gpu.example.org", name, shorten(clean(l.Domain), nameLength))
	}
	return nil
}

// bare is a Test without all that it should not have: none of it is anybody's words.
func bare(test *v1alpha1.Notice) *v1alpha1.Notice {
	n := test.DeepCopy()
	n.Spec.Inputs, n.Spec.Subject, n.Spec.Deadline, n.Spec.Lead, n.Spec.Recipient.Name = nil, nil, nil, nil, ""
	return n
}

// byDeadline is what a Digest carries, in the order in which it wants attention; what
// has no deadline comes last.
func byDeadline(carried []*v1alpha1.Notice) []*v1alpha1.Notice {
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

// contact is whom the mail names for questions.
func (l Letter) contact() string {
	if l.ReplyTo != "" {
		return l.ReplyTo
	}
	return l.From.Address
}

// language is the recipient's; English where it is none that Sluice writes.
func language(n *v1alpha1.Notice) v1alpha1.Language {
	if l := n.Spec.Recipient.Language; l == v1alpha1.LanguageGerman {
		return l
	}
	return v1alpha1.LanguageEnglish
}

// oneLine is a rendered text as a header or a heading shows it.
func oneLine(s string) string { return shorten(clean(strings.TrimSpace(s)), longestSubject) }
