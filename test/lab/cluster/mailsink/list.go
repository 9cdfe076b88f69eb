// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Header describes a mail in a list. Its texts are decoded and untrusted: clean them before
// printing them to a terminal.
type Header struct {
	// Number is the mail's number, and File the name of its file.
	Number int    `json:"number"`
	File   string `json:"file"`
	// At is the machine time at which the mail arrived, and Size its size in bytes.
	At   time.Time `json:"at"`
	Size int64     `json:"size"`
	// From, To and Subject are the mail's own fields; To is an address without a name.
	From    string `json:"from"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	// Date is the mail's own date; nil if it is missing or invalid.
	Date *time.Time `json:"date,omitempty"`
	// MessageID has its angle brackets.
	MessageID string `json:"messageID"`
	// Problem describes why the mail cannot be read; it is empty for a readable mail.
	Problem string `json:"problem,omitempty"`
}

// maxHeaderBytes limits how many bytes of a mail are searched for the end of its header.
const maxHeaderBytes = 64 << 10

// List returns the headers of the mails in dir, in the order of their arrival. A missing
// folder has no mails. An unreadable file is listed with its problem.
func List(dir string) ([]Header, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list mails: %w", err)
	}
	var list []Header
	for _, file := range numberedFiles(entries) {
		h, err := readHeader(dir, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list mails: %w", err)
		}
		list = append(list, h)
	}
	return list, nil
}

// Count returns the number of mails in dir; 0 if the folder is missing.
func Count(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("count mails: %w", err)
	}
	return len(numberedFiles(entries)), nil
}

func readHeader(dir string, file numberedFile) (Header, error) {
	opened, err := os.Open(filepath.Join(dir, file.name))
	if err != nil {
		return Header{}, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return Header{}, err
	}
	start, err := io.ReadAll(io.LimitReader(opened, maxHeaderBytes))
	if err != nil {
		return Header{}, err
	}
	h := parseHeader(start)
	h.Number, h.File, h.At, h.Size = file.number, file.name, file.at, info.Size()
	return h, nil
}

// parseHeader reads the header at the beginning of a mail.
func parseHeader(start []byte) Header {
	m, err := mail.ReadMessage(bufio.NewReader(bytes.NewReader(start)))
	if err != nil {
		return Header{Problem: "the header cannot be read: " + err.Error()}
	}
	h := Header{
		From: decodeHeaderField(m.Header.Get("From")), To: decodeHeaderField(m.Header.Get("To")),
		Subject:   decodeHeaderField(m.Header.Get("Subject")),
		MessageID: strings.TrimSpace(m.Header.Get("Message-ID")),
	}
	if to, err := mail.ParseAddress(m.Header.Get("To")); err == nil {
		h.To = to.Address
	}
	if date, err := m.Header.Date(); err == nil {
		date = date.UTC()
		h.Date = &date
	}
	return h
}

// decodeHeaderField returns a field's text with its encoded words decoded, or the unchanged
// text if they are invalid.
func decodeHeaderField(field string) string {
	text, err := new(mime.WordDecoder).DecodeHeader(field)
	if err != nil {
		return field
	}
	return text
}
