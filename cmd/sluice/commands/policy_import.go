// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/check"
	"sluice.dev/policies/convert"
	"sluice.dev/policies/engine"
)

// importSources are the sources of sluice policy import.
var importSources = map[string]func(context.Context, []convert.File, convert.Checker) (*convert.Result, error){
	"gatekeeper": convert.Gatekeeper, "kyverno-validate": convert.Kyverno, "runai": convert.RunAI,
}

// importFlags are the flags of sluice policy import.
type importFlags struct {
	out            string
	partial, force bool
}

func newPolicyImportCommand() *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use:   "import SOURCE DIRECTORY",
		Short: "Convert policies of Gatekeeper, Kyverno or Run:ai",
		Long: `Convert the policies of gatekeeper, kyverno-validate or runai in a directory and the directories in it.

For each policy the command writes NAME.yaml, NAME.rego and NAME.case.yaml with examples, and reports
what has no counterpart, by name and with what to do. Each policy passes sluice policy check, and the
directory sluice policy test. Without --out nothing is written. The command needs no cluster, and
fails if something was not converted.`,
		Example: `  # What would become of the constraints of a repository?
  sluice policy import gatekeeper constraints/

  # Write the policies, which sluice policy test then tests
  sluice policy import gatekeeper constraints/ --out policies/ --partial`,
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"gatekeeper", "kyverno-validate", "runai"},
	}
	output := addOutputFlag(cmd, []string{tableFormat, jsonFormat, yamlFormat})
	cmd.Flags().StringVar(&flags.out, "out", "", "Directory to write the policies to; it is created if it does not exist")
	cmd.Flags().BoolVar(&flags.partial, "partial", false, "Succeed although something was not converted")
	cmd.Flags().BoolVar(&flags.force, "force", false, "Replace files that exist")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, ok := importSources[args[0]]
		if !ok {
			return fmt.Errorf("unknown source %q; gatekeeper, kyverno-validate and runai are allowed", args[0])
		}
		files, err := readSourceFiles(args[1])
		if err != nil {
			return err
		}
		process, err := check.NewProcess(check.DefaultLimits)
		if err != nil {
			return err
		}
		result, err := from(cmd.Context(), files, func(ctx context.Context, source engine.Source, libraries ...engine.Source) (check.Result, error) {
			return process.Check(ctx, source, check.Environment{Policies: libraries})
		})
		if err != nil {
			return err
		}
		if len(result.Entries) == 0 {
			return fmt.Errorf("%s has no policies of %s", args[1], args[0])
		}
		written := []string{}
		if flags.out != "" {
			texts := make(map[string]string)
			for _, file := range convert.Files(result) {
				texts[file.Name] = string(file.Text)
			}
			existing := refuseExisting
			if flags.force {
				existing = replaceExisting
			}
			if written, err = writePolicyFiles(flags.out, texts, existing, "--force replaces them"); err != nil {
				return err
			}
		}
		report := importReport{Entries: result.Entries, Files: written}
		if err := output.print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printImport(w, &report) }); err != nil {
			return err
		}
		if count := result.Incomplete(); count > 0 && !flags.partial {
			return fmt.Errorf("objects that were not converted, or only in part: %d; --partial accepts them", count)
		}
		return nil
	}
	return cmd
}

// importReport is the report of sluice policy import.
type importReport struct {
	Entries []convert.Entry `json:"entries"`
	// Files are those that were written.
	Files []string `json:"files"`
}

// The limits of a directory to import.
const (
	maxSourceFiles = 10000
	maxSourceBytes = 64 << 20
	maxSourceFile  = 4 << 20
)

// readSourceFiles reads the YAML and JSON files of a directory. A file that is too large is read in part, so that the report names it.
func readSourceFiles(directory string) ([]convert.File, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", directory)
	}
	var files []convert.File
	total := 0
	folder := os.DirFS(directory)
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		file, err := folder.Open(name)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(file, maxSourceFile+1))
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files, total = append(files, convert.File{Name: name, Text: text}), total+len(text)
		if len(files) > maxSourceFiles || total > maxSourceBytes {
			return fmt.Errorf("%s has more than %d files or %d bytes: import its directories one by one", directory, maxSourceFiles, maxSourceBytes)
		}
		return nil
	})
	return files, err
}

// printImport prints a table of all objects, and below it the gaps and the notes of each.
func printImport(output io.Writer, report *importReport) error {
	table := printer.Table{Columns: printer.Columns("Object", "Result", "Policies")}
	for i := range report.Entries {
		e := &report.Entries[i]
		table.Rows = append(table.Rows, []string{e.Object, string(e.Status), cmp.Or(strings.Join(e.Policies, ", "), "-")})
	}
	if err := table.Write(output, true); err != nil {
		return err
	}
	for i := range report.Entries {
		e := &report.Entries[i]
		if len(e.Gaps)+len(e.Notes) == 0 {
			continue
		}
		fmt.Fprintf(output, "\n%s\n", printer.Sanitize(e.Object+" ("+e.File+")"))
		for _, gap := range e.Gaps {
			text := gap.Reason
			if gap.Part != "" {
				text = gap.Part + ": " + text
			}
			if gap.Fix != "" {
				text += "; " + gap.Fix
			}
			fmt.Fprintln(output, "  not converted: "+printer.Sanitize(text))
		}
		for _, note := range e.Notes {
			fmt.Fprintln(output, "  note: "+printer.Sanitize(note))
		}
	}
	if len(report.Files) > 0 {
		fmt.Fprintf(output, "\nFiles written: %d\n", len(report.Files))
	}
	return nil
}
