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
	// Text and HTML are its bodies; empty where it has none.
	Text string `json:"text"`
	HTML string `json:"html,omitempty"`
	// Attachments are its other parts.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Raw are the bytes as they came.
	Raw []byte `json:"-"`
}

// Attachment is a part that is neither the text nor the HTML.
type Attachment struct {
	// Name is its file's name; may be empty. Type is its media type.
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
	// Size is how many bytes it has, decoded.
	Size int `json:"size"`
}

// What is read of a mail, whoever put it there.
const (
	maxDepth = 5
	maxParts = 100
)

var (
	// ErrNoMail is that there is no such mail.
	ErrNoMail = errors.New("there is no such mail")

	errTooMany = fmt.Errorf("it has parts in more than %d levels, or more than %d parts", maxDepth, maxParts)
)

// Read reads the mail whose file is so named in dir. It wraps [ErrNoMail] where there
// is none of that name. What cannot be read of it is said in Problem.
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
		return nil, fmt.Errorf("reading a mail: %w", err)
	}
	defer opened.Close()
	raw, err := io.ReadAll(io.LimitReader(opened, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading a mail: %w", err)
	}
	if len(raw) > MaxSize {
		return nil, fmt.Errorf("reading a mail: %s has more than %d bytes", file, MaxSize)
	}
	m := &Mail{Header: parseHeader(raw[:min(len(raw), maxHeaderBytes)]), Raw: raw}
	m.Number, m.File, m.At, m.Size = number, file, at, int64(len(raw))
	if m.Problem == "" {
		m.parse()
	}
	return m, nil
}

// parse finds the bodies.
func (m *Mail) parse() {
	whole, err := message.Read(bytes.NewReader(m.Raw))
	if whole == nil {
		m.Problem = "it cannot be read: " + err.Error()
		return
	}
	parts := 0
	if err := m.walk(whole, 0, &parts); err != nil {
		m.Problem = "not all of it can be read: " + err.Error()
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
	body, err := io.ReadAll(e.Body) // never more than the file has
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
