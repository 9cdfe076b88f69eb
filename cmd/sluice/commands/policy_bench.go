// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/check"
	"sluice.dev/policies/workbench"
)

// benchFlags are the flags of sluice policy bench.
type benchFlags struct {
	objects, save, baseline string
	count                   int
	threshold               float64
}

func newPolicyBenchCommand() *cobra.Command {
	flags := benchFlags{count: 50, threshold: 1.2}
	cmd := &cobra.Command{
		Use:   "bench DIRECTORY",
		Short: "Measure the time of policies",
		Long: `Measure the time and the allocations of each policy in a directory for one object: the median of several rounds over
the objects of the cases and a dozen examples, or over those of --filename. Results are not cached; in a cluster many
are. Projects and departments of a match do not count.

--save writes a baseline: the figures, and the policies themselves. With --baseline both versions of a policy
are measured in turns on this machine, so that its noise meets both. The command fails if the time or the
allocations of a policy exceed those of the baseline by the factor of --threshold. A busy machine makes single figures
unreliable: repeat the measurement before you trust a ratio near the threshold.`,
		Example: `  # Before a change
  sluice policy bench policies/ --save baseline.json

  # After it
  sluice policy bench policies/ --baseline baseline.json`,
		Args: cobra.ExactArgs(1),
	}
	output := addListOutputFlag(cmd)
	cmd.Flags().StringVarP(&flags.objects, "filename", "f", "", "File or directory with objects, instead of the cases and examples")
	cmd.Flags().IntVar(&flags.count, "count", flags.count, "Number of rounds")
	cmd.Flags().StringVar(&flags.save, "save", "", "Write a baseline to this file")
	cmd.Flags().StringVar(&flags.baseline, "baseline", "", "Compare with the baseline in this file")
	cmd.Flags().Float64Var(&flags.threshold, "threshold", flags.threshold, "Factor beyond which the command fails")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		measurements, err := bench(cmd, args[0], &flags)
		if err != nil {
			return err
		}
		if err := output.printList(cmd, measurements, benchTable(measurements), "policies"); err != nil {
			return err
		}
		var slower []string
		for i := range measurements {
			if measurements[i].Ratio() > flags.threshold {
				slower = append(slower, measurements[i].Policy)
			}
		}
		if len(slower) > 0 {
			return fmt.Errorf("policies that exceed the baseline by more than %g: %s", flags.threshold, strings.Join(slower, ", "))
		}
		return nil
	}
	return cmd
}

func bench(cmd *cobra.Command, directory string, flags *benchFlags) ([]workbench.Measurement, error) {
	if flags.count < 1 || flags.threshold <= 0 {
		return nil, errors.New("--count must be at least 1, and --threshold above 0")
	}
	folder, err := loadPolicies(directory)
	if err != nil {
		return nil, err
	}
	var baseline *workbench.Baseline
	if flags.baseline != "" {
		file, err := os.Open(flags.baseline)
		if err != nil {
			return nil, err
		}
		baseline, err = workbench.ReadBaseline(file)
		_ = file.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flags.baseline, err)
		}
	}
	objects, err := benchObjects(folder, flags.objects)
	if err != nil {
		return nil, err
	}
	measurements, err := folder.Bench(cmd.Context(), objects, flags.count, baseline)
	if err != nil || flags.save == "" {
		return measurements, err
	}
	return measurements, writeFile(flags.save, func(w io.Writer) error { return folder.NewBaseline(measurements).Write(w) })
}

// benchObjects returns the objects of a path, or those of the cases and the examples.
func benchObjects(folder *workbench.Folder, name string) ([]map[string]any, error) {
	if name != "" {
		absolute, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		return workbench.ReadObjects(os.DirFS(filepath.Dir(absolute)), filepath.Base(absolute))
	}
	examples, err := check.Examples()
	return append(folder.CaseObjects(), examples...), err
}

// benchTable has a row for each policy, and those of the baseline beside it.
func benchTable(measurements []workbench.Measurement) printer.Table {
	compared := false
	for i := range measurements {
		compared = compared || measurements[i].Before != nil
	}
	table := printer.Table{Columns: append(
		printer.Columns("Policy", "Objects", "Time", "Allocations", "Memory"),
		printer.Column{Name: "Time Before", Hidden: !compared}, printer.Column{Name: "Allocations Before", Hidden: !compared},
		printer.Column{Name: "Ratio", Hidden: !compared},
	)}
	for i := range measurements {
		m := &measurements[i]
		row := []string{m.Policy, strconv.Itoa(m.Objects), "", "", "", "", "", ""}
		if m.Objects > 0 {
			row[2], row[3], row[4] = formatNanoseconds(m.Nanoseconds), strconv.FormatInt(m.Allocations, 10), strconv.FormatInt(m.Bytes, 10)+" B"
		}
		if before := m.Before; before != nil && before.Objects > 0 {
			row[5], row[6] = formatNanoseconds(before.Nanoseconds), strconv.FormatInt(before.Allocations, 10)
			row[7] = strconv.FormatFloat(m.Ratio(), 'f', 2, 64)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// formatNanoseconds returns a time with three digits, such as 12.3µs.
func formatNanoseconds(nanoseconds int64) string {
	duration := time.Duration(nanoseconds)
	unit := time.Nanosecond
	for duration >= 1000*unit {
		unit *= 10
	}
	return duration.Round(unit).String()
}
