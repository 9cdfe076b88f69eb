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
	"sluice.dev/cmd/sluice/up"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/mailsink"
)

func mailCommand() *cobra.Command {
	cmd := mailListCommand("mail")
	cmd.Short = "Show the mail that the embedded Kubernetes sent"
	cmd.Long = `mail lists the mails that an embedded Kubernetes sent. They go nowhere: a mail server
on this machine keeps each as a file.`
	cmd.Example = `  sluice mail
  sluice mail --to anna.mueller@example.org
  sluice mail show 1
  sluice mail show 1 --raw`
	cmd.AddCommand(mailListCommand("list"), mailShowCommand())
	return cmd
}

func mailListCommand(name string) *cobra.Command {
	var dir, to, output string
	cmd := &cobra.Command{
		Use:   name,
		Short: "List the mails that were sent, the latest last",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mails, err := embeddedMailDir(dir)
			if err != nil {
				return err
			}
			list, err := ListMails(mails, to)
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), list)
			}
			if len(list.Mails) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no mail was sent")
				return nil
			}
			return list.WriteTable(cmd.OutOrStdout(), time.Local)
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().StringVar(&to, "to", "", "those to this `address` alone")
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func mailShowCommand() *cobra.Command {
	var dir, output string
	var html, raw bool
	cmd := &cobra.Command{
		Use:   "show N|FILE",
		Short: "Show one mail",
		Long: `show prints a mail's header and text. It is named by its number or by its file; the
number stays the same.`,
		Example: `  sluice mail show 1
  sluice mail show 1 --html > mail.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if html && raw {
				return errors.New("want one of --html and --raw")
			}
			mails, err := embeddedMailDir(dir)
			if err != nil {
				return err
			}
			found, err := FindMail(mails, args[0])
			if err != nil {
				return err
			}
			switch {
			case html:
				return WriteMailHTML(cmd.OutOrStdout(), found)
			case raw:
				return WriteMailRaw(cmd.OutOrStdout(), found)
			case output == "json":
				return printer.WriteJSON(cmd.OutOrStdout(), found)
			}
			return WriteMailText(cmd.OutOrStdout(), found, time.Local)
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&html, "html", false, "its HTML as it came, for a browser")
	cmd.Flags().BoolVar(&raw, "raw", false, "its bytes as they came")
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// embeddedMailDir is where the mails of the embedded cluster in dir are.
func embeddedMailDir(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if !cluster.Exists(absolute) {
		return "", fmt.Errorf("%s is no embedded cluster's folder: name it with --dir, or start one with `sluice up`; a real cluster's mails are in its people's mailboxes", dir)
	}
	return up.MailDir(absolute), nil
}

// MailDocument is the form of the list for a machine.
type MailDocument struct {
	// Dir is the folder of the mails.
	Dir string `json:"dir"`
	// Mails are their headers, in the order in which they were taken; never null.
	Mails []mailsink.Header `json:"mails"`
}

// ListMails reads the mails in dir, or with an address those to it alone.
func ListMails(dir, to string) (MailDocument, error) {
	found, err := mailsink.List(dir)
	if err != nil {
		return MailDocument{}, err
	}
	if to != "" {
		found = slices.DeleteFunc(found, func(h mailsink.Header) bool { return !strings.EqualFold(h.To, to) })
	}
	return MailDocument{Dir: dir, Mails: append([]mailsink.Header{}, found...)}, nil
}

// WriteTable prints the list for a person, times in zone.
func (d MailDocument) WriteTable(output io.Writer, zone *time.Location) error {
	table := printer.Table{Headers: []string{"N", "TAKEN", "TO", "SUBJECT"}, Right: []string{"N"}}
	for _, h := range d.Mails {
		subject := h.Subject
		if h.Problem != "" {
			subject = "(" + h.Problem + ")"
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(h.Number), printer.FormatSecond(h.At, zone), h.To, subject})
	}
	return table.Write(output)
}

// FindMail reads the mail that a person means: by its number, or by its file's name or
// path. The error says how to see which there are.
func FindMail(dir, which string) (*mailsink.Mail, error) {
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
		err = fmt.Errorf("%w; `sluice mail` lists those that there are", err)
	}
	return m, err
}

// mailFileName is the file of the mail with a number.
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
	return "", fmt.Errorf("%w with number %d; `sluice mail` lists those that there are", mailsink.ErrNoMail, number)
}

// WriteMailText prints a mail for a person: its header, its text, and what hangs on it. Times
// are in zone.
func WriteMailText(output io.Writer, m *mailsink.Mail, zone *time.Location) error {
	var text strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s%s\n", name+":", printer.Sanitize(value))
		}
	}
	line("From", m.From)
	line("To", m.To)
	line("Subject", m.Subject)
	if m.Date != nil {
		line("Date", printer.FormatSecond(*m.Date, zone))
	}
	line("Message-ID", m.MessageID)
	for _, a := range m.Attachments {
		line("Attached", fmt.Sprintf("%s (%s, %d bytes)", a.Name, a.Type, a.Size))
	}
	line("File", m.File)
	line("Problem", m.Problem)
	fmt.Fprintf(&text, "\n%s", withTrailingNewline(printer.SanitizeLines(m.Text)))
	_, err := io.WriteString(output, text.String())
	return err
}

// WriteMailHTML prints a mail's page as it came: for a file or a browser, not for a terminal.
func WriteMailHTML(output io.Writer, m *mailsink.Mail) error {
	if m.HTML == "" {
		return fmt.Errorf("mail %d has no HTML; `sluice mail show %d` shows its text", m.Number, m.Number)
	}
	_, err := io.WriteString(output, withTrailingNewline(m.HTML))
	return err
}

// WriteMailRaw prints a mail's bytes as they came.
func WriteMailRaw(output io.Writer, m *mailsink.Mail) error {
	_, err := output.Write(m.Raw)
	return err
}

func withTrailingNewline(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
