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

// Header is what a list shows of a mail. Texts in it are decoded and as hostile as
// whoever wrote them: clean them before they reach a terminal.
type Header struct {
	// Number is the mail's, and File the name of its file.
	Number int    `json:"number"`
	File   string `json:"file"`
	// At is when it was taken, machine time, and Size how many bytes it has.
	At   time.Time `json:"at"`
	Size int64     `json:"size"`
	// From, To and Subject are the mail's own; To is an address alone.
	From    string `json:"from"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	// Date is the one in the mail; nil where it has none that can be read.
	Date *time.Time `json:"date,omitempty"`
	// MessageID has its angle brackets.
	MessageID string `json:"messageID"`
	// Problem says why the mail cannot be read; empty where it can.
	Problem string `json:"problem,omitempty"`
}

// maxHeaderBytes is how many bytes of a mail are read in search of its header's end.
const maxHeaderBytes = 64 << 10

// List reads the headers of the mails in dir, in the order in which they were taken.
// It is no error where the folder is not there. A file that is no mail is listed, with
// what is wrong with it.
func List(dir string) ([]Header, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the mails: %w", err)
	}
	var list []Header
	for _, file := range numberedFiles(entries) {
		h, err := readHeader(dir, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was the oldest
		}
		if err != nil {
			return nil, fmt.Errorf("reading the mails: %w", err)
		}
		list = append(list, h)
	}
	return list, nil
}

// Count is how many mails there are in dir; 0 where the folder is not there.
func Count(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("counting the mails: %w", err)
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

// parseHeader reads a header from the beginning of a mail.
func parseHeader(start []byte) Header {
	m, err := mail.ReadMessage(bufio.NewReader(bytes.NewReader(start)))
	if err != nil {
		return Header{Problem: "its header cannot be read: " + err.Error()}
	}
	h := Header{
		From: decodeHeaderField(m.Header.Get("From")), To: decodeHeaderField(m.Header.Get("To")), Subject: decodeHeaderField(m.Header.Get("Subject")),
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

// decodeHeaderField is a field's text with its encoded words read; as it stands where they
// cannot be.
func decodeHeaderField(field string) string {
	text, err := new(mime.WordDecoder).DecodeHeader(field)
	if err != nil {
		return field
	}
	return text
}
