// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/mail"

	"sluice.dev/test/cluster/mailsink"
)

// letter is a mail as its recipient's program reads it.
type letter struct {
	subject, messageID, language, text, html string
	// references are the mails that it answers, with their angle brackets.
	references string
	// method is its calendar's; empty for none.
	method string
	events []event
}

// calendarTime is the form of an instant in a calendar.
const calendarTime = "20060102T150405Z"

// event is an appointment in a mail.
type event struct{ uid, sequence, ends, status string }

// lettersTo are the mails in the sink's files that a person got, in their order.
func (c *timed) lettersTo(t *testing.T, address string) (list []letter) {
	t.Helper()
	dir := filepath.Join(c.dir, "mail")
	headers, err := mailsink.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		if h.To != address {
			continue
		}
		m, err := mailsink.Read(dir, h.File)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, readLetter(t, m.Raw))
	}
	return list
}

func readLetter(t *testing.T, raw []byte) (l letter) {
	t.Helper()
	whole, err := message.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	h := mail.Header{Header: whole.Header}
	l.messageID, l.references, l.language = h.Get("Message-ID"), h.Get("References"), h.Get("Content-Language")
	if l.subject, err = h.Subject(); err != nil {
		t.Errorf("%v:\n%s", err, raw)
	}
	if err := l.take(whole); err != nil {
		t.Errorf("%v:\n%s", err, raw)
	}
	return l
}

// take finds the texts and the calendar in a part.
func (l *letter) take(part *message.Entity) error {
	if several := part.MultipartReader(); several != nil {
		for {
			next, err := several.NextPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := l.take(next); err != nil {
				return err
			}
		}
	}
	body, err := io.ReadAll(part.Body)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(body), "\r\n", "\n")
	kind, _, err := part.Header.ContentType()
	switch kind {
	case "text/plain":
		l.text = text
	case "text/html":
		l.html = text
	case "text/calendar":
		l.calendar(strings.ReplaceAll(text, "\n ", ""))
	}
	return err
}

// calendar reads the appointments, line by line.
func (l *letter) calendar(text string) {
	for line := range strings.Lines(text) {
		property, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if property == "BEGIN" && value == "VEVENT" {
			l.events = append(l.events, event{})
			continue
		}
		if property == "METHOD" {
			l.method = value
		}
		if len(l.events) == 0 {
			continue
		}
		now := &l.events[len(l.events)-1]
		switch property {
		case "UID":
			now.uid = value
		case "SEQUENCE":
			now.sequence = value
		case "DTEND":
			now.ends = value
		case "STATUS":
			now.status = value
		}
	}
}
