// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/clock"
	"sluice.dev/cmd/sluice/ahead"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/cmd/sluice/up"
)

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
			file, absolute, err := clockOf(dir)
			if err != nil {
				return err
			}
			if _, err := up.Status(absolute); err != nil {
				return err
			}
			c, err := open(cmd, connect.Options{Dir: absolute})
			if err != nil {
				return err
			}
			recorded, err := ahead.Read(cmd.Context(), c)
			if err != nil {
				return err
			}
			return next(cmd.OutOrStdout(), file, recorded, dryRun, output)
		},
	}
	dirFlag(cmd, &dir)
	outputFlag(cmd, &output, "text", "json")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what it is")
	return cmd
}

// outlook is what next says to a machine.
type outlook struct {
	// Next are the events that come first, all at one instant; never null.
	Next []ahead.Event `json:"next"`
	// InSeconds is how long it was until then, before the step.
	InSeconds int64 `json:"inSeconds"`
	// PolicyTime is policy time after the step, or now where there was none.
	PolicyTime up.PolicyTime `json:"policyTime"`
}

// next says what comes next, and steps there unless dryRun.
func next(output io.Writer, file *clock.File, recorded ahead.Recorded, dryRun bool, form string) error {
	now := file.Now()
	events := ahead.Next(now, recorded)
	said := outlook{Next: append([]ahead.Event{}, events...)}
	if len(events) > 0 {
		// To the second, as people and objects have it; the rest is rounded up.
		said.InSeconds = int64((events[0].At.Sub(now) + time.Second - 1) / time.Second)
		if !dryRun {
			if err := stepTo(file, events[0].At); err != nil {
				return err
			}
		}
	}
	said.PolicyTime = up.TimeOf(file)
	if form == "json" {
		return show.JSON(output, said)
	}
	if len(events) == 0 {
		fmt.Fprintln(output, "nothing is recorded to come: no end of a workload, no warning, no notice, no step of a project")
		return nil
	}
	in := show.Span(time.Duration(said.InSeconds) * time.Second)
	for _, event := range events {
		fmt.Fprintf(output, "in %s, at %s: %s\n", in, show.Second(event.At, time.Local), show.Clean(event.What))
	}
	if dryRun {
		return nil
	}
	return showTime(output, said.PolicyTime, form)
}

// stepTo steps policy time to an instant. Where it runs fast, it may have got
// there by itself.
func stepTo(file *clock.File, at time.Time) error {
	if step := at.Sub(file.Now()); step > clock.MaxStep {
		return fmt.Errorf("it is %s away, and one step is at most %s: use `sluice clock advance` several times", show.Span(step), show.Span(clock.MaxStep))
	}
	return file.AdvanceTo(at)
}
