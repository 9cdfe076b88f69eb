// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"bytes"
	"fmt"
	"io"
	"net/mail"
	"net/url"
	"strings"
	"unicode/utf8"

	gomessage "github.com/emersion/go-message"
	gomail "github.com/emersion/go-message/mail"

	"sluice.dev/api/v1alpha1"
)

// encode returns the bytes of the mail: text and HTML as alternatives, and the appointment as an
// attachment. As a third alternative, mail clients with a calendar would show it instead of the
// text.
func encode(l ComposeRequest, m *Message, events []byte) ([]byte, error) {
	h := buildHeader(l, m).Header
	var b bytes.Buffer
	if len(events) == 0 {
		h.SetContentType("multipart/alternative", map[string]string{"boundary": partBoundary(m.MessageID, "alternative")})
		w, err := gomessage.CreateWriter(&b, h)
		if err != nil {
			return nil, err
		}
		if err := writeAlternatives(w, m); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}

	h.SetContentType("multipart/mixed", map[string]string{"boundary": partBoundary(m.MessageID, "mixed")})
	w, err := gomessage.CreateWriter(&b, h)
	if err != nil {
		return nil, err
	}
	var inner gomessage.Header
	inner.SetContentType("multipart/alternative", map[string]string{"boundary": partBoundary(m.MessageID, "alternative")})
	both, err := w.CreatePart(inner)
	if err != nil {
		return nil, err
	}
	if err := writeAlternatives(both, m); err != nil {
		return nil, err
	}
	var calendar gomessage.Header
	calendar.SetContentType("text/calendar", map[string]string{"charset": "utf-8", "method": calendarMethod(l)})
	calendar.SetContentDisposition("attachment", map[string]string{"filename": "deadline.ics"})
	if err := writePart(w, calendar, events); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeAlternatives(w *gomessage.Writer, m *Message) error {
	for _, body := range []struct{ mediaType, text string }{{"text/plain", m.Text}, {"text/html", m.HTML}} {
		var h gomessage.Header
		h.SetContentType(body.mediaType, map[string]string{"charset": "utf-8"})
		if err := writePart(w, h, []byte(body.text)); err != nil {
			return err
		}
	}
	return w.Close()
}

// writePart writes one part as quoted-printable, with CRLF line breaks.
func writePart(w *gomessage.Writer, h gomessage.Header, body []byte) error {
	mediaType, _, err := h.ContentType()
	if err != nil {
		return err
	}
	h.Set("Content-Transfer-Encoding", "quoted-printable")
	p, err := w.CreatePart(h)
	if err != nil {
		return fmt.Errorf("the %s part: %w", mediaType, err)
	}
	if _, err := io.Copy(p, bytes.NewReader(body)); err != nil {
		return fmt.Errorf("the %s part: %w", mediaType, err)
	}
	return p.Close()
}

// dateLayout is the layout of RFC 5322, in UTC.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 +0000"

// buildHeader returns the mail's header without the fields of its body.
func buildHeader(l ComposeRequest, m *Message) gomail.Header {
	spec := &l.Notice.Spec
	fields := []string{
		foldField("From", mailboxWords(l.From.Name, l.From.Address)),
		foldField("To", mailboxWords(string(spec.Recipient.Name), string(spec.Recipient.Email))),
		foldField("Subject", unstructuredWords("Subject", m.Subject)),
		foldField("Date", []string{recordedAt(l.Notice).UTC().Format(dateLayout)}),
		foldField("Message-ID", []string{m.MessageID}),
	}
	if l.ReplyTo != "" {
		fields = append(fields, foldField("Reply-To", []string{l.ReplyTo}))
	}
	if root := threadID(l.Notice, l.Domain); root != "" {
		fields = append(fields, foldField("In-Reply-To", []string{root}), foldField("References", []string{root}))
	}
	// Suppress automatic replies.
	fields = append(fields, foldField("Auto-Submitted", []string{"auto-generated"}), foldField("X-Auto-Response-Suppress", []string{"All"}))
	fields = append(fields, foldField("Content-Language", []string{string(languageOf(l.Notice))}))
	if spec.IsOptional() {
		fields = append(fields, foldField("List-Unsubscribe", []string{unsubscribeURI(l.contactAddress(), spec.Kind)}))
	}
	var h gomail.Header
	for i := range fields { // each goes on top of those before
		h.AddRaw([]byte(fields[len(fields)-1-i]))
	}
	return h
}

func unsubscribeURI(to string, kind v1alpha1.NoticeKind) string {
	at := strings.LastIndexByte(to, '@')
	return fmt.Sprintf("<mailto:%s@%s?subject=%s>", url.PathEscape(to[:at]), to[at+1:], url.PathEscape("Mute "+string(kind)))
}

// mailboxWords returns a name and an address as words for folding.
func mailboxWords(display, address string) []string {
	display = displayName(display)
	if display == "" {
		return []string{"<" + address + ">"}
	}
	if isPlainText(display) {
		quoted := (&mail.Address{Name: display, Address: address}).String()
		return []string{quoted[:strings.LastIndexByte(quoted, ' ')], "<" + address + ">"}
	}
	return append(encodeWords("Reply-To", display), "<"+address+">")
}

// unstructuredWords returns a text as words for folding.
func unstructuredWords(key, text string) []string {
	if !isPlainText(text) {
		return encodeWords(key, text)
	}
	words := strings.Split(text, " ")
	for _, w := range words {
		if len(w) > maxHeaderLineLength-len(key)-2 {
			return encodeWords(key, text)
		}
	}
	return words
}

// isPlainText reports whether a header may contain the text unencoded.
func isPlainText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return !strings.Contains(s, "=?") && s == strings.Join(strings.Fields(s), " ")
}

const (
	maxHeaderLineLength  = 76 // RFC 2047's for a line with encoded words
	maxEncodedWordLength = 75
	encodedWordPrefix    = "=?utf-8?q?"
	encodedWordSuffix    = "?="
)

// encodeWords returns encoded words (RFC 2047) that split no character and fit into a line. It
// encodes all but letters and digits, as required in a phrase.
func encodeWords(key, text string) (words []string) {
	room := maxHeaderLineLength - len(key) - len(": ")
	var b strings.Builder
	for _, r := range text {
		piece := quoteRune(r)
		if b.Len() > 0 && len(encodedWordPrefix)+b.Len()+len(piece)+len(encodedWordSuffix) > room {
			words = append(words, encodedWordPrefix+b.String()+encodedWordSuffix)
			b.Reset()
			room = maxEncodedWordLength
		}
		b.WriteString(piece)
	}
	return append(words, encodedWordPrefix+b.String()+encodedWordSuffix)
}

func quoteRune(r rune) string {
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

// foldField returns a folded header field.
func foldField(key string, words []string) string {
	var b strings.Builder
	b.WriteString(key + ":")
	column := b.Len()
	for i, w := range words {
		if i > 0 && column+1+len(w) > maxHeaderLineLength {
			b.WriteString("\r\n")
			column = 0
		}
		b.WriteString(" " + w)
		column += 1 + len(w)
	}
	return b.String() + "\r\n"
}
