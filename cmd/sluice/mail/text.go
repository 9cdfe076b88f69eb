// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sluice.dev/cmd/sluice/show"
	"sluice.dev/test/cluster/mailsink"
)

// Text prints a mail for a person: its header, its text, and what hangs on it. Times
// are in zone.
func Text(output io.Writer, m *mailsink.Mail, zone *time.Location) error {
	var text strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s%s\n", name+":", show.Clean(value))
		}
	}
	line("From", m.From)
	line("To", m.To)
	line("Subject", m.Subject)
	if m.Date != nil {
		line("Date", show.Second(*m.Date, zone))
	}
	line("Message-ID", m.MessageID)
	for _, a := range m.Attachments {
		line("Attached", fmt.Sprintf("%s (%s, %d bytes)", a.Name, a.Type, a.Size))
	}
	line("File", m.File)
	line("Problem", m.Problem)
	fmt.Fprintf(&text, "\n%s", withEnd(show.CleanLines(m.Text)))
	_, err := io.WriteString(output, text.String())
	return err
}

// HTML prints a mail's page as it came: for a file or a browser, not for a terminal.
func HTML(output io.Writer, m *mailsink.Mail) error {
	if m.HTML == "" {
		return fmt.Errorf("mail %d has no HTML; `sluice mail show %d` shows its text", m.Number, m.Number)
	}
	_, err := io.WriteString(output, withEnd(m.HTML))
	return err
}

// Raw prints a mail's bytes as they came.
func Raw(output io.Writer, m *mailsink.Mail) error {
	_, err := output.Write(m.Raw)
	return err
}

func withEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
