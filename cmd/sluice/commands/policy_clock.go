// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/up"
)

func clockCommand() *cobra.Command {
	cmd := policyClockCommand("clock", "Show the policy time of an embedded cluster, or step it",
		func(*cobra.Command, *policytime.File, []string) error { return nil })
	cmd.Args = cobra.NoArgs
	cmd.Long = `Policy time is what limits, deadlines, warnings and expiry dates count in. It is
real time, but on a cluster that ` + "`sluice up`" + ` runs it can run faster and be stepped
forward, never back. Objects' own times, such as a pod's start, stay real.`
	cmd.Example = `  sluice clock
  sluice clock advance 1d12h
  sluice clock scale 60
  sluice clock next --dry-run`
	advance := policyClockCommand("advance DURATION", "Step policy time forward, by 30m, 48h, 30d or 1d12h",
		func(_ *cobra.Command, file *policytime.File, args []string) error {
			step, err := period.ParseDuration(args[0])
			if err != nil {
				return err
			}
			if step.Length() > policytime.MaxStep {
				return fmt.Errorf("duration %q: want at most %s in one step", step, printer.FormatDuration(policytime.MaxStep))
			}
			return file.Advance(step.Length())
		})
	scale := policyClockCommand("scale N", "Make policy time run N times as fast as real time, 1 to 3600",
		func(_ *cobra.Command, file *policytime.File, args []string) error {
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

// policyClockCommand is a command that does something to an embedded cluster's clock, and
// then shows it.
func policyClockCommand(use, short string, do func(*cobra.Command, *policytime.File, []string) error) *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, absolute, err := openPolicyClock(dir)
			if err != nil {
				return err
			}
			if err := do(cmd, file, args); err != nil {
				return err
			}
			// Read anew: what is shown is what every process finds there now.
			if file, err = up.OpenClock(absolute); err != nil {
				return err
			}
			return printPolicyTime(cmd.OutOrStdout(), up.PolicyTimeOf(file), output)
		},
	}
	addDirFlag(cmd, &dir)
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// openPolicyClock is the clock of the embedded cluster in a folder, and the folder's
// absolute path.
func openPolicyClock(dir string) (*policytime.File, string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	file, err := up.OpenClock(absolute)
	return file, absolute, err
}

func printPolicyTime(output io.Writer, now up.PolicyTime, form string) error {
	if form == "json" {
		return printer.WriteJSON(output, now)
	}
	_, err := fmt.Fprintf(output, "policy time  %s\nreal time    %s\nscale        %s\n",
		now.Summary(time.Local), printer.FormatSecond(now.Real, time.Local), now.ScaleText())
	return err
}

func nextCommand() *cobra.Command {
	var dir, output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "next",
		Short: "Step policy time to what is recorded to come next",
		Long: `next steps policy time to what comes first of all that is recorded: the end of a
workload and each warning before it, a notice that is due, or a project's next
step. It says what that is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, absolute, err := openPolicyClock(dir)
			if err != nil {
				return err
			}
			if _, err := up.Status(absolute); err != nil {
				return err
			}
			c, err := connectCluster(cmd, ClusterOptions{Dir: absolute})
			if err != nil {
				return err
			}
			recorded, err := ListEventSources(cmd.Context(), c)
			if err != nil {
				return err
			}
			return advanceToNextEvents(cmd.OutOrStdout(), file, recorded, dryRun, output)
		},
	}
	addDirFlag(cmd, &dir)
	addOutputFlag(cmd, &output, "text", "json")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what it is")
	return cmd
}

// nextEventsResult is what next says to a machine.
type nextEventsResult struct {
	// Events are the events that come first, all at one instant; never null.
	Events []UpcomingEvent `json:"next"`
	// InSeconds is how long it was until then, before the step.
	InSeconds int64 `json:"inSeconds"`
	// PolicyTime is policy time after the step, or now where there was none.
	PolicyTime up.PolicyTime `json:"policyTime"`
}

// advanceToNextEvents says what comes next, and steps there unless dryRun.
func advanceToNextEvents(output io.Writer, file *policytime.File, recorded EventSources, dryRun bool, form string) error {
	now := file.Now()
	events := NextEvents(now, recorded)
	said := nextEventsResult{Events: append([]UpcomingEvent{}, events...)}
	if len(events) > 0 {
		// To the second, as people and objects have it; the rest is rounded up.
		said.InSeconds = int64((events[0].At.Sub(now) + time.Second - 1) / time.Second)
		if !dryRun {
			if err := advanceClockTo(file, events[0].At); err != nil {
				return err
			}
		}
	}
	said.PolicyTime = up.PolicyTimeOf(file)
	if form == "json" {
		return printer.WriteJSON(output, said)
	}
	if len(events) == 0 {
		fmt.Fprintln(output, "nothing is recorded to come: no end of a workload, no warning, no notice, no step of a project")
		return nil
	}
	in := printer.FormatDuration(time.Duration(said.InSeconds) * time.Second)
	for _, event := range events {
		fmt.Fprintf(output, "in %s, at %s: %s\n", in, printer.FormatSecond(event.At, time.Local), printer.Sanitize(event.Description))
	}
	if dryRun {
		return nil
	}
	return printPolicyTime(output, said.PolicyTime, form)
}

// advanceClockTo steps policy time to an instant. Where it runs fast, it may have got
// there by itself.
func advanceClockTo(file *policytime.File, at time.Time) error {
	if step := at.Sub(file.Now()); step > policytime.MaxStep {
		return fmt.Errorf("it is %s away, and one step is at most %s: use `sluice clock advance` several times", printer.FormatDuration(step), printer.FormatDuration(policytime.MaxStep))
	}
	return file.AdvanceTo(at)
}
