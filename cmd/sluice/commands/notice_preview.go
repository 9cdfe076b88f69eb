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

func noticesPreviewCommand() *cobra.Command {
	var language, form, out string
	var browser bool
	cmd := &cobra.Command{
		Use:   "preview [KIND]",
		Short: "Show an example of each mail that Sluice writes",
		Long: `preview shows what a mail of a kind looks like, in the words that are built in, by an
example; without a kind it lists all examples. It talks to no cluster.`,
		Example: `  sluice notices preview
  sluice notices preview WorkloadEnding --language de
  sluice notices preview projectexpiring-month --browser`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spoken := v1alpha1.Language(language)
			if spoken != v1alpha1.LanguageGerman && spoken != v1alpha1.LanguageEnglish {
				return fmt.Errorf("--language %q: want de or en", language)
			}
			if forms := []string{PreviewText, PreviewHTML, PreviewEML}; !slices.Contains(forms, form) {
				return fmt.Errorf("--format %q: want text, html or eml", form)
			}
			if len(args) == 0 {
				return printNoticeExamples(cmd, spoken)
			}
			if browser {
				form = PreviewHTML
			}
			content, err := RenderNoticePreview(args[0], spoken, form)
			switch {
			case err != nil:
				return err
			case browser:
				return openInBrowser(cmd.Context(), out, content)
			case out != "":
				return os.WriteFile(out, []byte(content), 0o600)
			}
			fmt.Fprint(cmd.OutOrStdout(), content)
			return nil
		},
	}
	cmd.Flags().StringVar(&language, "language", "en", "the `language`: de, en")
	cmd.Flags().StringVar(&form, "format", PreviewText, "the `form`: text, html, eml")
	cmd.Flags().StringVar(&out, "out", "", "write it to this `file`")
	cmd.Flags().BoolVar(&browser, "browser", false, "open its HTML in the browser")
	return cmd
}

func printNoticeExamples(cmd *cobra.Command, language v1alpha1.Language) error {
	list, err := ListNoticeExamples(language)
	if err != nil {
		return err
	}
	table := printer.Table{Headers: []string{"NAME", "KIND", "SUBJECT"}}
	for _, e := range list {
		table.Rows = append(table.Rows, []string{e.Name, string(e.Kind), e.Subject})
	}
	return table.Write(cmd.OutOrStdout())
}

// openInBrowser opens a page in the person's browser, by a file that stays: the browser reads
// it when it likes.
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
		return fmt.Errorf("there is no %s to open the browser with; the page is %s", program, path)
	}
	if err != nil {
		return fmt.Errorf("opening %s with %s: %w", path, program, err)
	}
	return nil
}

// The forms of a preview.
const (
	PreviewText = "text"
	PreviewHTML = "html"
	PreviewEML  = "eml"
)

// NoticeExample is a letter that can be previewed.
type NoticeExample struct {
	// Name is what it is called: its kind in lower case, and what of that it shows.
	Name string `json:"name"`
	// Kind is the message's.
	Kind v1alpha1.NoticeKind `json:"kind"`
	// Subject is the mail's, in the language that was asked for.
	Subject string `json:"subject"`
}

// ListNoticeExamples are the letters that can be previewed, by kinds.
func ListNoticeExamples(language v1alpha1.Language) ([]NoticeExample, error) {
	var list []NoticeExample
	for _, letter := range examplesInLanguage(language) {
		m, err := mail.Compose(letter)
		if err != nil {
			return nil, err
		}
		list = append(list, NoticeExample{Name: exampleName(letter), Kind: letter.Notice.Spec.Kind, Subject: m.Subject})
	}
	slices.SortFunc(list, func(a, b NoticeExample) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// RenderNoticePreview is the mail of an example, which is named by its kind or its name, in upper
// or lower case, in a form.
func RenderNoticePreview(which string, language v1alpha1.Language, form string) (string, error) {
	for _, letter := range examplesInLanguage(language) {
		if !strings.EqualFold(which, string(letter.Notice.Spec.Kind)) && !strings.EqualFold(which, exampleName(letter)) {
			continue
		}
		m, err := mail.Compose(letter)
		if err != nil {
			return "", err
		}
		switch form {
		case PreviewHTML:
			return m.HTML, nil
		case PreviewEML:
			return string(m.Bytes), nil
		}
		return "Subject: " + m.Subject + "\n\n" + m.Text, nil
	}
	return "", fmt.Errorf("%q is no kind of message; `sluice notices preview` lists those that there are", which)
}

func examplesInLanguage(language v1alpha1.Language) []mail.ComposeRequest {
	return slices.DeleteFunc(mail.Examples(), func(l mail.ComposeRequest) bool { return l.Notice.Spec.Recipient.Language != language })
}

// exampleName is an example's, without its language.
func exampleName(letter mail.ComposeRequest) string {
	return strings.TrimSuffix(letter.Notice.Name, "."+string(letter.Notice.Spec.Recipient.Language))
}
