// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"fmt"
	"io"

	gomessage "github.com/emersion/go-message"
)

// encode writes the mail: text and HTML as alternatives, and beside them, where there
// is one, the appointment. It is not a third alternative: a reader that knows calendars
// would show it instead of the text.
func encode(l Letter, m *Mail, events []byte) ([]byte, error) {
	h := header(l, m).Header
	var b bytes.Buffer
	if len(events) == 0 {
		h.SetContentType("multipart/alternative", map[string]string{"boundary": boundary(m.MessageID, "alternative")})
		w, err := gomessage.CreateWriter(&b, h)
		if err != nil {
			return nil, err
		}
		if err := alternatives(w, m); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}

	h.SetContentType("multipart/mixed", map[string]string{"boundary": boundary(m.MessageID, "mixed")})
	w, err := gomessage.CreateWriter(&b, h)
	if err != nil {
		return nil, err
	}
	var inner gomessage.Header
	inner.SetContentType("multipart/alternative", map[string]string{"boundary": boundary(m.MessageID, "alternative")})
	both, err := w.CreatePart(inner)
	if err != nil {
		return nil, err
	}
	if err := alternatives(both, m); err != nil {
		return nil, err
	}
	var calendar gomessage.Header
	calendar.SetContentType("text/calendar", map[string]string{"charset": "utf-8", "method": method(l)})
	calendar.SetContentDisposition("attachment", map[string]string{"filename": "deadline.ics"})
	if err := part(w, calendar, events); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func alternatives(w *gomessage.Writer, m *Mail) error {
	for _, body := range []struct{ mediaType, text string }{{"text/plain", m.Text}, {"text/html", m.HTML}} {
		var h gomessage.Header
		h.SetContentType(body.mediaType, map[string]string{"charset": "utf-8"})
		if err := part(w, h, []byte(body.text)); err != nil {
			return err
		}
	}
	return w.Close()
}

// part writes one part, quoted-printable: no line is too long, and every line feed
// becomes a CRLF.
func part(w *gomessage.Writer, h gomessage.Header, body []byte) error {
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
