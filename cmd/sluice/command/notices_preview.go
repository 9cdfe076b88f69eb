// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/notices"
	"sluice.dev/cmd/sluice/show"
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
			if forms := []string{notices.FormText, notices.FormHTML, notices.FormMail}; !slices.Contains(forms, form) {
				return fmt.Errorf("--format %q: want text, html or eml", form)
			}
			if len(args) == 0 {
				return listExamples(cmd, spoken)
			}
			if browser {
				form = notices.FormHTML
			}
			content, err := notices.Preview(args[0], spoken, form)
			switch {
			case err != nil:
				return err
			case browser:
				return browse(cmd.Context(), out, content)
			case out != "":
				return os.WriteFile(out, []byte(content), 0o600)
			}
			fmt.Fprint(cmd.OutOrStdout(), content)
			return nil
		},
	}
	cmd.Flags().StringVar(&language, "language", "en", "the `language`: de, en")
	cmd.Flags().StringVar(&form, "format", notices.FormText, "the `form`: text, html, eml")
	cmd.Flags().StringVar(&out, "out", "", "write it to this `file`")
	cmd.Flags().BoolVar(&browser, "browser", false, "open its HTML in the browser")
	return cmd
}

func listExamples(cmd *cobra.Command, language v1alpha1.Language) error {
	list, err := notices.Examples(language)
	if err != nil {
		return err
	}
	table := show.Table{Headers: []string{"NAME", "KIND", "SUBJECT"}}
	for _, e := range list {
		table.Rows = append(table.Rows, []string{e.Name, string(e.Kind), e.Subject})
	}
	return table.Write(cmd.OutOrStdout())
}

// browse opens a page in the person's browser, by a file that stays: the browser reads
// it when it likes.
func browse(ctx context.Context, path, page string) error {
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
