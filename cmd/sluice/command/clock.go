// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/clock"
	"sluice.dev/api/period"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/cmd/sluice/up"
)

func clockCommand() *cobra.Command {
	cmd := clockly("clock", "Show the policy time of an embedded cluster, or step it",
		func(*cobra.Command, *clock.File, []string) error { return nil })
	cmd.Args = cobra.NoArgs
	cmd.Long = `Policy time is what limits, deadlines, warnings and expiry dates count in. It is
real time, but on a cluster that ` + "`sluice up`" + ` runs it can run faster and be stepped
forward, never back. Objects' own times, such as a pod's start, stay real.`
	cmd.Example = `  sluice clock
  sluice clock advance 1d12h
  sluice clock scale 60
  sluice clock next --dry-run`
	advance := clockly("advance DURATION", "Step policy time forward, by 30m, 48h, 30d or 1d12h",
		func(_ *cobra.Command, file *clock.File, args []string) error {
			step, err := period.ParseDuration(args[0])
			if err != nil {
				return err
			}
			if step.Length() > clock.MaxStep {
				return fmt.Errorf("duration %q: want at most %s in one step", step, show.Span(clock.MaxStep))
			}
			return file.Advance(step.Length())
		})
	scale := clockly("scale N", "Make policy time run N times as fast as real time, 1 to 3600",
		func(_ *cobra.Command, file *clock.File, args []string) error {
			value, err := parseScale(args[0])
			if err != nil {
				return fmt.Errorf("scale %w", err)
			}
			return file.SetScale(value)
		})
	for _, child := range []*cobra.Command{advance, scale} {
		child.Args = cobra.ExactArgs(1)
	}
	cmd.AddCommand(advance, scale, nextCommand())
	return cmd
}

// clockly is a command that does something to an embedded cluster's clock, and
// then shows it.
func clockly(use, short string, do func(*cobra.Command, *clock.File, []string) error) *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, absolute, err := clockOf(dir)
			if err != nil {
				return err
			}
			if err := do(cmd, file, args); err != nil {
				return err
			}
			// Read anew: what is shown is what every process finds there now.
			if file, err = up.Clock(absolute); err != nil {
				return err
			}
			return showTime(cmd.OutOrStdout(), up.TimeOf(file), output)
		},
	}
	dirFlag(cmd, &dir)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// clockOf is the clock of the embedded cluster in a folder, and the folder's
// absolute path.
func clockOf(dir string) (*clock.File, string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	file, err := up.Clock(absolute)
	return file, absolute, err
}

func showTime(output io.Writer, now up.PolicyTime, form string) error {
	if form == "json" {
		return show.JSON(output, now)
	}
	_, err := fmt.Fprintf(output, "policy time  %s\nreal time    %s\nscale        %s\n",
		now.Phrase(time.Local), show.Second(now.Real, time.Local), now.ScaleText())
	return err
}
