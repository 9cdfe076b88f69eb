// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster/mailsink"
	"sluice.dev/test/lab/up"
)

const mailHelp = `Show the mail that an embedded cluster sent.

The mail server of an embedded cluster delivers nothing. It keeps each mail as a file
on this machine.`

func newMailListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List mails",
		Long:  "List the mails that an embedded cluster sent, the latest last.",
		Example: `  # List all mails
  sluice mail list

  # List the mails to one address
  sluice mail list --to anna.mueller@example.org`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd)
	output := addOutputFlag(cmd, "table", "wide")
	to := cmd.Flags().String("to", "", "List the mails to this address")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := cluster.embeddedDir()
		if err != nil {
			return err
		}
		list, err := listMails(up.MailDir(dir), *to)
		if err != nil {
			return err
		}
		return output.printTable(cmd, list, list.table(time.Local), "mails")
	}
	return cmd
}

func newMailShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NUMBER|FILE",
		Short: "Show a mail",
		Long:  "Show the header and the text of a mail. The number of a mail never changes.",
		Example: `  # Show the first mail
  sluice mail show 1

  # Save its HTML for a browser
  sluice mail show 1 --html > mail.html

  # Print its bytes
  sluice mail show 1 --raw`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd)
	output := addOutputFlag(cmd, "text")
	html := cmd.Flags().Bool("html", false, "Print the HTML of the mail")
	raw := cmd.Flags().Bool("raw", false, "Print the bytes of the mail")
	cmd.MarkFlagsMutuallyExclusive("html", "raw", "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := cluster.embeddedDir()
		if err != nil {
			return err
		}
		m, err := findMail(up.MailDir(dir), args[0])
		if err != nil {
			return err
		}
		switch {
		case *html:
			return writeMailHTML(cmd.OutOrStdout(), m)
		case *raw:
			return writeMailRaw(cmd.OutOrStdout(), m)
		default:
			return output.printText(cmd.OutOrStdout(), m, mailText(m, time.Local))
		}
	}
	return cmd
}

// mailDocument is the JSON output of list.
type mailDocument struct {
	// Dir is the folder of the mails.
	Dir string `json:"dir"`
	// Mails are the headers in the order of arrival; never null.
	Mails []mailsink.Header `json:"mails"`
}

// listMails lists the mails in dir, or only those to an address.
func listMails(dir, to string) (mailDocument, error) {
	headers, err := mailsink.List(dir)
	if err != nil {
		return mailDocument{}, err
	}
	if to != "" {
		headers = slices.DeleteFunc(headers, func(h mailsink.Header) bool { return !strings.EqualFold(h.To, to) })
	}
	return mailDocument{Dir: dir, Mails: append([]mailsink.Header{}, headers...)}, nil
}

// table returns the table of the mails, with times in zone.
func (d mailDocument) table(zone *time.Location) printer.Table {
	table := printer.Table{Columns: append(printer.Columns("NUMBER", "RECEIVED", "TO", "SUBJECT"), printer.Column{Name: "FILE", Wide: true})}
	for _, h := range d.Mails {
		subject := h.Subject
		if h.Problem != "" {
			subject = "(" + h.Problem + ")"
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(h.Number), printer.FormatSecond(h.At, zone), h.To, subject, h.File})
	}
	return table
}

// findMail reads a mail by its number, or by the name or path of its file.
func findMail(dir, which string) (*mailsink.Mail, error) {
	file := filepath.Base(which)
	if number, err := strconv.Atoi(which); err == nil {
		if file, err = mailFileName(dir, number); err != nil {
			return nil, err
		}
	} else if parent := filepath.Dir(which); parent != "." {
		dir = parent
	}
	m, err := mailsink.Read(dir, file)
	if errors.Is(err, mailsink.ErrNoMail) {
		err = fmt.Errorf("%w; `sluice mail list` lists all mails", err)
	}
	return m, err
}

func mailFileName(dir string, number int) (string, error) {
	list, err := mailsink.List(dir)
	if err != nil {
		return "", err
	}
	for _, h := range list {
		if h.Number == number {
			return h.File, nil
		}
	}
	return "", fmt.Errorf("%w with number %d; `sluice mail list` lists all mails", mailsink.ErrNoMail, number)
}

// mailText returns the header, the attachments and the text of a mail, with times
// in zone.
func mailText(m *mailsink.Mail, zone *time.Location) string {
	var text printer.FieldList
	text.Add("From", m.From)
	text.Add("To", m.To)
	text.Add("Subject", m.Subject)
	text.AddTime("Date", m.Date, zone)
	text.Add("Message-ID", m.MessageID)
	for _, a := range m.Attachments {
		text.Add("Attached", fmt.Sprintf("%s (%s, %d bytes)", a.Name, a.Type, a.Size))
	}
	text.Add("File", m.File)
	text.Add("Problem", m.Problem)
	text.WriteString("\n" + withTrailingNewline(printer.SanitizeLines(m.Text)))
	return text.String()
}

// writeMailHTML prints the HTML of a mail as it is.
func writeMailHTML(output io.Writer, m *mailsink.Mail) error {
	if m.HTML == "" {
		return fmt.Errorf("mail %d has no HTML; `sluice mail show %d` shows its text", m.Number, m.Number)
	}
	_, err := io.WriteString(output, withTrailingNewline(m.HTML))
	return err
}

// writeMailRaw prints the bytes of a mail as they are.
func writeMailRaw(output io.Writer, m *mailsink.Mail) error {
	_, err := output.Write(m.Raw)
	return err
}

func withTrailingNewline(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
