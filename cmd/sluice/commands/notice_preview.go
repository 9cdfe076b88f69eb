// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/mail"
)

// The formats of a preview.
const (
	previewText = "text"
	previewHTML = "html"
	previewEML  = "eml"
)

func newNoticesPreviewCommand() *cobra.Command {
	language, format := string(v1alpha1.LanguageEnglish), previewText
	cmd := &cobra.Command{
		Use:   "preview [KIND]",
		Short: "Show an example mail of each kind of notice",
		Long: `Show an example mail of a kind of notice, with Sluice's own texts. Without a kind, list
all examples. With --all, write one HTML page with all of them, in both languages. The
command needs no cluster.`,
		Example: `  # List all examples
  sluice notices preview

  # Show one in German
  sluice notices preview WorkloadEnding --language de

  # Open one in the browser
  sluice notices preview projectexpiring-month --browser

  # Write all mails into one page
  sluice notices preview --all --out mails.html`,
		Args: cobra.MaximumNArgs(1),
	}
	output := addListOutputFlag(cmd)
	addLanguageFlag(cmd, &language)
	addChoiceFlag(cmd, &format, "format", "", "Format of the mail", []string{previewText, previewHTML, previewEML})
	file := cmd.Flags().String("out", "", "Write the mail to this `file`")
	browser := cmd.Flags().Bool("browser", false, "Open the HTML of the mail in the browser")
	all := cmd.Flags().Bool("all", false, "Write one HTML page with all mails, in both languages")
	cmd.MarkFlagsMutuallyExclusive("all", "language")
	cmd.MarkFlagsMutuallyExclusive("all", "format")
	cmd.MarkFlagsMutuallyExclusive("all", "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all && len(args) > 0 {
			return fmt.Errorf("--all writes the mails of all kinds; remove %q", args[0])
		}
		if !*all && len(args) == 0 {
			examples, err := listNoticeExamples(v1alpha1.Language(language))
			if err != nil {
				return err
			}
			return output.printList(cmd, map[string][]noticeExample{"examples": examples}, noticeExampleTable(examples), "examples")
		}
		var content string
		var err error
		switch {
		case *all:
			content, err = renderNoticeGallery()
		case *browser:
			content, err = renderNoticePreview(args[0], v1alpha1.Language(language), previewHTML)
		default:
			content, err = renderNoticePreview(args[0], v1alpha1.Language(language), format)
		}
		switch {
		case err != nil:
			return err
		case *browser:
			return openInBrowser(cmd.Context(), *file, content)
		case *file != "":
			return os.WriteFile(*file, []byte(content), 0o600)
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), content)
		return err
	}
	return cmd
}

func addLanguageFlag(cmd *cobra.Command, language *string) {
	languages := []string{string(v1alpha1.LanguageGerman), string(v1alpha1.LanguageEnglish)}
	addChoiceFlag(cmd, language, "language", "", "Language of the mail", languages)
}

// openInBrowser opens a page from a file, which stays for the browser to read.
func openInBrowser(ctx context.Context, path, page string) error {
	if path == "" {
		file, err := os.CreateTemp("", "sluice-mail-*.html")
		if err != nil {
			return err
		}
		path = file.Name()
		if err := file.Close(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		return err
	}
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	err := exec.CommandContext(ctx, program, path).Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s not found, which opens the browser; the page is %s", program, path)
	}
	if err != nil {
		return fmt.Errorf("open %s with %s: %w", path, program, err)
	}
	return nil
}

// noticeExample is an example mail.
type noticeExample struct {
	// Name is the kind in lower case, and a variant.
	Name string              `json:"name"`
	Kind v1alpha1.NoticeKind `json:"kind"`
	// Subject is the subject of the mail in the selected language.
	Subject string `json:"subject"`
}

// listNoticeExamples returns all examples by name.
func listNoticeExamples(language v1alpha1.Language) ([]noticeExample, error) {
	var list []noticeExample
	for _, request := range examplesInLanguage(language) {
		m, err := mail.Compose(request)
		if err != nil {
			return nil, err
		}
		list = append(list, noticeExample{Name: exampleName(request), Kind: request.Notice.Spec.Kind, Subject: m.Subject})
	}
	slices.SortFunc(list, func(a, b noticeExample) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func noticeExampleTable(examples []noticeExample) printer.Table {
	table := printer.Table{Columns: printer.Columns("NAME", "KIND", "SUBJECT")}
	for _, e := range examples {
		table.Rows = append(table.Rows, []string{e.Name, string(e.Kind), e.Subject})
	}
	return table
}

// renderNoticePreview returns the mail of an example. The example is named by its
// kind or its name, in any case.
func renderNoticePreview(which string, language v1alpha1.Language, format string) (string, error) {
	for _, request := range examplesInLanguage(language) {
		if !strings.EqualFold(which, string(request.Notice.Spec.Kind)) && !strings.EqualFold(which, exampleName(request)) {
			continue
		}
		m, err := mail.Compose(request)
		if err != nil {
			return "", err
		}
		switch format {
		case previewHTML:
			return m.HTML, nil
		case previewEML:
			return string(m.Bytes), nil
		}
		return "Subject: " + m.Subject + "\n\n" + m.Text, nil
	}
	return "", fmt.Errorf("%q is no kind of notice; `sluice notices preview` lists all examples", which)
}

func examplesInLanguage(language v1alpha1.Language) []mail.ComposeRequest {
	return slices.DeleteFunc(mail.Examples(), func(r mail.ComposeRequest) bool { return r.Notice.Spec.Recipient.Language != language })
}

// exampleName returns the name of an example without its language.
func exampleName(request mail.ComposeRequest) string {
	return strings.TrimSuffix(request.Notice.Name, "."+string(request.Notice.Spec.Recipient.Language))
}
