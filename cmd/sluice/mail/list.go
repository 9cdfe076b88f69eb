// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/cmd/sluice/show"
	"sluice.dev/test/cluster/mailsink"
)

// Document is the form of the list for a machine.
type Document struct {
	// Dir is the folder of the mails.
	Dir string `json:"dir"`
	// Mails are their headers, in the order in which they were taken; never null.
	Mails []mailsink.Header `json:"mails"`
}

// List reads the mails in dir, or with an address those to it alone.
func List(dir, to string) (Document, error) {
	found, err := mailsink.List(dir)
	if err != nil {
		return Document{}, err
	}
	if to != "" {
		found = slices.DeleteFunc(found, func(h mailsink.Header) bool { return !strings.EqualFold(h.To, to) })
	}
	return Document{Dir: dir, Mails: append([]mailsink.Header{}, found...)}, nil
}

// Table prints the list for a person, times in zone.
func (d Document) Table(output io.Writer, zone *time.Location) error {
	table := show.Table{Headers: []string{"N", "TAKEN", "TO", "SUBJECT"}, Right: []string{"N"}}
	for _, h := range d.Mails {
		subject := h.Subject
		if h.Problem != "" {
			subject = "(" + h.Problem + ")"
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(h.Number), show.Second(h.At, zone), h.To, subject})
	}
	return table.Write(output)
}
