// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/up"
)

const policyTimeHelp = `Show or advance the policy time of an embedded cluster.

Limits, deadlines, warnings and expiry dates count in policy time. On most clusters
it is real time. On a cluster that ` + "`sluice up`" + ` runs, it can run faster and be
advanced, but never set back. Timestamps of objects, such as a pod's start, stay in
real time.`

func newTimeShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show policy time, real time and the scale",
		Long:  "Show policy time, real time, and how fast policy time runs.",
		Example: `  # Show the policy time of the current cluster
  sluice time show`,
		Args: cobra.NoArgs,
	}
	return addTimeRun(cmd, func(*policytime.File, []string) error { return nil })
}

func newTimeAdvanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advance DURATION",
		Short: "Advance policy time by a duration",
		Long:  "Advance policy time by a duration such as 30m, 48h, 30d or 1d12h.",
		Example: `  # Advance policy time by a day and a half
  sluice time advance 1d12h`,
		Args: cobra.ExactArgs(1),
	}
	return addTimeRun(cmd, func(file *policytime.File, args []string) error {
		step, err := period.ParseDuration(args[0])
		if err != nil {
			return err
		}
		if step.Length() > policytime.MaxStep {
			return fmt.Errorf("duration %q: want at most %s in one step", step, printer.FormatDuration(policytime.MaxStep))
		}
		return file.Advance(step.Length())
	})
}

func newTimeScaleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scale N",
		Short: "Set how fast policy time runs",
		Long:  "Make policy time run N times as fast as real time, 1 to 3600.",
		Example: `  # Let an hour pass in a minute
  sluice time scale 60`,
		Args: cobra.ExactArgs(1),
	}
	return addTimeRun(cmd, func(file *policytime.File, args []string) error {
		scale, err := parseScale(args[0])
		if err != nil {
			return fmt.Errorf("scale %w", err)
		}
		return file.SetScale(scale)
	})
}

// addTimeRun makes a command change the policy time of an embedded cluster, and
// then show it.
func addTimeRun(cmd *cobra.Command, change func(*policytime.File, []string) error) *cobra.Command {
	cluster := addClusterFlags(cmd)
	output := addOutputFlag(cmd, "text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := cluster.embeddedDir()
		if err != nil {
			return err
		}
		file, err := up.OpenClock(dir)
		if err != nil {
			return err
		}
		if err := change(file, args); err != nil {
			return err
		}
		// Other processes read the file, so show what the file has.
		if file, err = up.OpenClock(dir); err != nil {
			return err
		}
		now := up.PolicyTimeOf(file)
		return output.printText(cmd.OutOrStdout(), now, policyTimeText(now))
	}
	return cmd
}

func policyTimeText(now up.PolicyTime) string {
	return fmt.Sprintf("Policy time: %s\nReal time:   %s\nScale:       %s\n",
		now.Summary(time.Local), printer.FormatSecond(now.Real, time.Local), now.ScaleText())
}

func newTimeNextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "next",
		Short: "Advance policy time to the next event",
		Long: `Advance policy time to the next event: the end of a workload, a warning before it, a
notice that is due, a warning before the next phase of a project, or that phase.`,
		Example: `  # Show the next event
  sluice time next --dry-run

  # Advance policy time to it
  sluice time next`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd)
	output := addOutputFlag(cmd, "text")
	dryRun := cmd.Flags().Bool("dry-run", false, "Only show the next event")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := cluster.embeddedDir()
		if err != nil {
			return err
		}
		file, err := up.OpenClock(dir)
		if err != nil {
			return err
		}
		if _, err := up.Status(dir); err != nil {
			return err
		}
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		c, err := installation.NewAdminClient(config)
		if err != nil {
			return err
		}
		sources, err := listEventSources(cmd.Context(), c)
		if err != nil {
			return err
		}
		result, err := advanceToNextEvents(file, sources, *dryRun)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), result, func(output io.Writer) error { return result.writeText(output, *dryRun) })
	}
	return cmd
}

// nextEventsResult is the output of the command next.
type nextEventsResult struct {
	// Events are the next events, all at one time; never null.
	Events []upcomingEvent `json:"events"`
	// InSeconds is the time until the events, before the step.
	InSeconds int64 `json:"inSeconds"`
	// PolicyTime is policy time after the step.
	PolicyTime up.PolicyTime `json:"policyTime"`
}

// advanceToNextEvents finds the next events, and advances policy time to them
// unless dryRun.
func advanceToNextEvents(file *policytime.File, sources eventSources, dryRun bool) (nextEventsResult, error) {
	now := file.Now()
	events := nextEvents(now, sources)
	result := nextEventsResult{Events: append([]upcomingEvent{}, events...)}
	if len(events) > 0 {
		result.InSeconds = int64((events[0].At.Sub(now) + time.Second - 1) / time.Second) // rounded up
		if !dryRun {
			if err := advanceClockTo(file, events[0].At); err != nil {
				return result, err
			}
		}
	}
	result.PolicyTime = up.PolicyTimeOf(file)
	return result, nil
}

// advanceClockTo advances policy time to a time. Where policy time runs fast, it
// may have passed that time already.
func advanceClockTo(file *policytime.File, at time.Time) error {
	if step := at.Sub(file.Now()); step > policytime.MaxStep {
		return fmt.Errorf("the next event is %s away, and one step is at most %s: use `sluice time advance` several times",
			printer.FormatDuration(step), printer.FormatDuration(policytime.MaxStep))
	}
	return file.AdvanceTo(at)
}

func (r nextEventsResult) writeText(output io.Writer, dryRun bool) error {
	var text strings.Builder
	in := printer.FormatDuration(time.Duration(r.InSeconds) * time.Second)
	for _, event := range r.Events {
		fmt.Fprintf(&text, "In %s, at %s: %s\n", in, printer.FormatSecond(event.At, time.Local), printer.Sanitize(event.Description))
	}
	switch {
	case len(r.Events) == 0:
		text.WriteString("No upcoming event: no end of a workload, no warning, no notice and no phase of a project is recorded.\n")
	case !dryRun:
		text.WriteString(policyTimeText(r.PolicyTime))
	}
	_, err := io.WriteString(output, text.String())
	return err
}

// scaleFlag is the value of the flag --time-scale.
type scaleFlag float64

// Set implements pflag.Value.
func (s *scaleFlag) Set(text string) error {
	value, err := parseScale(text)
	*s = scaleFlag(value)
	return err
}

// String implements pflag.Value.
func (s *scaleFlag) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*s), 'f', -1, 64)
}

// Type implements pflag.Value.
func (s *scaleFlag) Type() string { return "float" }

func parseScale(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number from 1 to 3600", text)
	}
	return value, up.ValidateScale(value)
}
