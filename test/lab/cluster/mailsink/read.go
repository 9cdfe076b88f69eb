// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/emersion/go-message"
)

// Mail is a whole mail.
type Mail struct {
	Header
	// Text and HTML are the mail's bodies; they may be empty.
	Text string `json:"text"`
	HTML string `json:"html,omitempty"`
	// Attachments describes the other parts.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Raw is the mail as it arrived.
	Raw []byte `json:"-"`
}

// Attachment describes a part that is neither the text nor the HTML.
type Attachment struct {
	// Name is the attachment's file name and may be empty. Type is its media type.
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
	// Size is the decoded size in bytes.
	Size int `json:"size"`
}

// Limits of what Read parses.
const (
	maxDepth = 5
	maxParts = 100
)

var (
	// ErrNoMail reports that a mail does not exist.
	ErrNoMail = errors.New("no such mail")

	errTooMany = fmt.Errorf("parts in more than %d levels, or more than %d parts", maxDepth, maxParts)
)

// Read returns the mail in the given file of dir. The error wraps [ErrNoMail] if dir has no
// mail of that name. Problem describes parts that cannot be read.
func Read(dir, file string) (*Mail, error) {
	at, number, ok := parseName(file)
	if !ok {
		return nil, fmt.Errorf("%w: %q is not the name of a mail's file", ErrNoMail, file)
	}
	opened, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoMail, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read mail: %w", err)
	}
	defer opened.Close()
	raw, err := io.ReadAll(io.LimitReader(opened, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read mail: %w", err)
	}
	if len(raw) > MaxSize {
		return nil, fmt.Errorf("read mail: %s has more than %d bytes", file, MaxSize)
	}
	m := &Mail{Header: parseHeader(raw[:min(len(raw), maxHeaderBytes)]), Raw: raw}
	m.Number, m.File, m.At, m.Size = number, file, at, int64(len(raw))
	if m.Problem == "" {
		m.parse()
	}
	return m, nil
}

// parse sets the bodies and attachments.
func (m *Mail) parse() {
	whole, err := message.Read(bytes.NewReader(m.Raw))
	if whole == nil {
		m.Problem = "the mail cannot be read: " + err.Error()
		return
	}
	parts := 0
	if err := m.walk(whole, 0, &parts); err != nil {
		m.Problem = "not all of the mail can be read: " + err.Error()
	}
}

func (m *Mail) walk(e *message.Entity, depth int, parts *int) error {
	if *parts++; depth > maxDepth || *parts > maxParts {
		return errTooMany
	}
	if several := e.MultipartReader(); several != nil {
		for {
			part, err := several.NextPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if part == nil {
				return err
			}
			if err := m.walk(part, depth+1, parts); err != nil {
				return err
			}
		}
	}
	body, err := io.ReadAll(e.Body) // bounded by the size of the file
	if err != nil {
		return err
	}
	kind, _, err := e.Header.ContentType()
	if err != nil {
		kind = "application/octet-stream"
	}
	disposition, params, _ := e.Header.ContentDisposition()
	switch {
	case kind == "text/plain" && disposition != "attachment" && m.Text == "":
		m.Text = normalizeNewlines(body)
	case kind == "text/html" && disposition != "attachment" && m.HTML == "":
		m.HTML = normalizeNewlines(body)
	default:
		m.Attachments = append(m.Attachments, Attachment{Name: params["filename"], Type: kind, Size: len(body)})
	}
	return nil
}

func normalizeNewlines(body []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(body), "\ufffd"), "\r\n", "\n")
}
