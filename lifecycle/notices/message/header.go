// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"unicode/utf8"

	gomail "github.com/emersion/go-message/mail"

	"sluice.dev/api/v1alpha1"
)

// dateLayout is RFC 5322's, in UTC.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 +0000"

// header is the mail's header, but for what describes its body.
func header(l Letter, m *Mail) gomail.Header {
	spec := &l.Notice.Spec
	fields := []string{
		folded("From", mailbox(l.From.Name, l.From.Address)),
		folded("To", mailbox(string(spec.Recipient.Name), string(spec.Recipient.Email))),
		folded("Subject", unstructured("Subject", m.Subject)),
		folded("Date", []string{recorded(l.Notice).UTC().Format(dateLayout)}),
		folded("Message-ID", []string{m.MessageID}),
	}
	if l.ReplyTo != "" {
		fields = append(fields, folded("Reply-To", []string{l.ReplyTo}))
	}
	if root := thread(l.Notice, l.Domain); root != "" {
		fields = append(fields, folded("In-Reply-To", []string{root}), folded("References", []string{root}))
	}
	// No answering machine shall answer.
	fields = append(fields, folded("Auto-Submitted", []string{"auto-generated"}), folded("X-Auto-Response-Suppress", []string{"All"}))
	fields = append(fields, folded("Content-Language", []string{string(language(l.Notice))}))
	if optional[spec.Kind] {
		fields = append(fields, folded("List-Unsubscribe", []string{unsubscribe(l.contact(), spec.Kind)}))
	}
	var h gomail.Header
	for i := range fields { // each goes on top of those before
		h.AddRaw([]byte(fields[len(fields)-1-i]))
	}
	return h
}

func unsubscribe(to string, kind v1alpha1.NoticeKind) string {
	at := strings.LastIndexByte(to, '@')
	return fmt.Sprintf("<mailto:%s@%s?subject=%s>", url.PathEscape(to[:at]), to[at+1:], url.PathEscape("Mute "+string(kind)))
}

// mailbox is a name and an address, as words between which a line may be folded.
func mailbox(display, address string) []string {
	display = name(display)
	if display == "" {
		return []string{"<" + address + ">"}
	}
	if plain(display) {
		quoted := (&mail.Address{Name: display, Address: address}).String()
		return []string{quoted[:strings.LastIndexByte(quoted, ' ')], "<" + address + ">"}
	}
	return append(encodedWords("Reply-To", display), "<"+address+">")
}

// unstructured is a text, as words between which a line may be folded.
func unstructured(key, text string) []string {
	if !plain(text) {
		return encodedWords(key, text)
	}
	words := strings.Split(text, " ")
	for _, w := range words {
		if len(w) > lineLength-len(key)-2 {
			return encodedWords(key, text)
		}
	}
	return words
}

// plain reports whether a reader takes the text as it stands.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return !strings.Contains(s, "=?") && s == strings.Join(strings.Fields(s), " ")
}

const (
	lineLength = 76 // RFC 2047's for a line with encoded words
	wordLength = 75
	opening    = "=?utf-8?q?"
	closing    = "?="
)

// encodedWords are RFC 2047's, none of which splits a character or is too long for the
// line it stands on. What is not a letter or a digit is encoded, as a phrase wants it.
func encodedWords(key, text string) (words []string) {
	room := lineLength - len(key) - len(": ")
	var b strings.Builder
	for _, r := range text {
		piece := quoted(r)
		if b.Len() > 0 && len(opening)+b.Len()+len(piece)+len(closing) > room {
			words = append(words, opening+b.String()+closing)
			b.Reset()
			room = wordLength
		}
		b.WriteString(piece)
	}
	return append(words, opening+b.String()+closing)
}

func quoted(r rune) string {
	switch {
	case r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r == '-':
		return string(r)
	case r == ' ':
		return "_"
	}
	var b strings.Builder
	for _, c := range utf8.AppendRune(nil, r) {
		fmt.Fprintf(&b, "=%02X", c)
	}
	return b.String()
}

// folded is a whole field: a word that does not fit begins a new line.
func folded(key string, words []string) string {
	var b strings.Builder
	b.WriteString(key + ":")
	column := b.Len()
	for i, w := range words {
		if i > 0 && column+1+len(w) > lineLength {
			b.WriteString("\r\n")
			column = 0
		}
		b.WriteString(" " + w)
		column += 1 + len(w)
	}
	return b.String() + "\r\n"
}
