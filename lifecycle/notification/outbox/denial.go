// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/smtp"
)

// A denial of one recipient, such as "relay access denied", has two possible causes: the address
// or the configuration. The Notice is retried and other mails are sent. Mail pauses only if the
// configuration is the cause: see deniesAllMail.

// proofWindow is the time for which an accepted mail proves that the configuration works, in machine time. A
// Notice is retried for longer, so a pause at its end still loses no mail.
const proofWindow = 24 * time.Hour

// denials holds the words of the last denial by domain. An accepted mail removes its domain.
type denials map[string]string

// recordReply records the reply to a mail. An empty text means that the mail was accepted.
func (d denials) recordReply(address, words string) {
	if domain := domainOf(address); words == "" {
		delete(d, domain)
	} else {
		d[domain] = words
	}
}

// isRepeated reports whether a second domain was denied in these words.
func (d denials) isRepeated(words string) bool {
	domains := 0
	for _, other := range d {
		if other == words {
			domains++
		}
	}
	return domains > 1
}

// deniesAllMail reports whether the configuration is the cause of a denial in these words: a
// second domain was denied in the same words, no mail was sent since the policy time since, and
// one of the denied domains had received mail before, or none ever had.
func (d denials) deniesAllMail(words string, notices []v1alpha1.Notice, since time.Time) bool {
	if !d.isRepeated(words) {
		return false
	}
	anySent, deniedWasSent := false, false
	for i := range notices {
		at := notices[i].Status.SentAt
		switch {
		case at == nil:
		case at.After(since):
			return false
		default:
			anySent = true
			deniedWasSent = deniedWasSent || d[domainOf(recipientAddress(&notices[i]))] == words
		}
	}
	return deniedWasSent || !anySent
}

// configurationFailureOf returns why mail must pause after the reply to n's mail; nil if it
// continues. It records the reply.
func (s *Sender) configurationFailureOf(ctx context.Context, now Instant, n *v1alpha1.Notice, sendErr error) (failure, err error) {
	words := ""
	switch kind := failureKindOf(sendErr); {
	case sendErr == nil:
	case kind == ConfigurationFailure:
		return sendErr, nil
	case kind != DeniedFailure:
		return nil, nil
	default:
		words = failureOf(sendErr).Words
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.denials == nil {
		s.denials = denials{}
	}
	s.denials.recordReply(recipientAddress(n), words)
	if sendErr == nil {
		s.acceptedAt = now.Machine
	}
	recentlyAccepted := !s.acceptedAt.IsZero() && now.Machine.Sub(s.acceptedAt) < proofWindow
	if sendErr == nil || recentlyAccepted || !s.denials.isRepeated(words) { // spares reading all Notices
		return nil, nil
	}
	var all v1alpha1.NoticeList
	if err := s.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	if !s.denials.deniesAllMail(words, all.Items, s.Clock.FromReal(now.Machine.Add(-proofWindow))) {
		return nil, nil
	}
	return &Failure{
		Kind: ConfigurationFailure, Err: fmt.Errorf("the mail server denies recipients of more than one domain: %s", words),
	}, nil
}

// domainOf returns the domain of an address, in lower case.
func domainOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

// denialWords returns the server's reply without the words that differ between recipients:
// addresses, their parts, and words with digits.
func denialWords(f *smtp.Failure, address string) string {
	local, domain, _ := strings.Cut(strings.ToLower(address), "@")
	words := []string{strconv.Itoa(f.Code)}
	if f.Enhanced != "" {
		words = append(words, f.Enhanced)
	}
	for word := range strings.FieldsSeq(strings.ToLower(f.Text)) {
		bare := strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		differs := strings.ContainsFunc(word, unicode.IsDigit) || strings.Contains(word, "@") || strings.Contains(word, domain)
		if bare != "" && bare != local && !differs {
			words = append(words, bare)
		}
	}
	return strings.Join(words, " ")
}

// addressPattern matches mail addresses in a text.
var addressPattern = regexp.MustCompile(`[^\s<>"'(),:;\[\]]+(@|%40)[^\s<>"'(),:;\[\]]+`)

// redactAddresses removes mail addresses from a text for logs, events and the mail state.
func redactAddresses(text string) string {
	return addressPattern.ReplaceAllString(text, "[address]")
}

// publicReason returns the reason of a failure without addresses, for logs and events.
func publicReason(err error) string {
	if failure := failureOf(err); failure != nil && failure.Summary != "" {
		return singleLine(redactAddresses(failure.Summary))
	}
	return singleLine(redactAddresses(err.Error()))
}
