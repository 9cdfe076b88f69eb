// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/webhook/replay"
)

// replayFlags are the flags of sluice policy replay.
type replayFlags struct {
	directory, since, until, project string
	show                             int
	failOnChange                     bool
}

// replayGCPercent limits the garbage, in percent of the memory in use. It is the webhook's, so that the collector takes no
// processor from the evaluations.
const replayGCPercent = 400

func newPolicyReplayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use:   "replay LOG... --policies DIRECTORY",
		Short: "Show which recorded decisions would come out otherwise",
		Long: `Evaluate recorded decisions again, with the built-in policies and those of a directory, at the recorded
times, and show which would come out otherwise. A log has the decision records of the webhook, which it writes
with decisions.objects in its configuration; gzip may have compressed it, and - is the standard input.

A decision cannot be replayed if its object was not recorded, if a policy reads what was masked, or data that
differ from those of then. A policy of the directory in DryRun counts as Deny. The policies that decided were those of the cluster: the directory needs
all of them that are not built in. The command needs no cluster, and changes nothing.`,
		Example: `  # Which pods of the last day would a changed policy refuse?
  sluice policy replay decisions.jsonl* --policies policies/ --since 24h

  # In a pipeline, from the standard input, such as kubectl -n sluice-system logs deployment/webhook
  sluice policy replay - --policies policies/ --fail-on-change`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&flags.directory, "policies", "", "Directory with policies, beside the built-in ones")
	cmd.Flags().StringVar(&flags.since, "since", "", "Only decisions from this time on: 24h ago, or 2026-01-05T12:00:00Z")
	cmd.Flags().StringVar(&flags.until, "until", "", "Only decisions before this time, in the same form")
	cmd.Flags().StringVarP(&flags.project, "project", "p", "", "Only decisions in this project")
	cmd.Flags().IntVar(&flags.show, "show", 3, "Number of examples of each kind of difference")
	cmd.Flags().BoolVar(&flags.failOnChange, "fail-on-change", false, "Fail if a decision comes out otherwise or cannot be replayed, or if there is none")
	_ = cmd.MarkFlagRequired("policies")
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := flags.options(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		folder, err := loadFolder(flags.directory)
		if err != nil {
			return err
		}
		data, err := folder.Data()
		if err != nil {
			return err
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(replayGCPercent)
		}
		replayer, err := replay.New(folder.Sources(nil), data)
		if err != nil {
			return err
		}
		summary, err := replayer.Run(cmd.Context(), replayLogs(cmd.InOrStdin(), args), options)
		if err != nil {
			return err
		}
		for _, warning := range replayWarnings(summary) {
			fmt.Fprintln(cmd.ErrOrStderr(), printer.Sanitize("Warning: "+warning))
		}
		err = output.print(cmd.OutOrStdout(), summary, func(w io.Writer) error { return printReplay(w, summary) })
		if err == nil {
			err = flags.failure(summary)
		}
		return err
	}
	return cmd
}

// failure returns why the command fails, though it printed the summary; nil if it does not.
func (f *replayFlags) failure(s *replay.Summary) error {
	switch {
	case len(s.Problems) > 0:
		return fmt.Errorf("logs that could not be read to their end: %d", len(s.Problems))
	case !f.failOnChange:
		return nil
	case s.Differs() || s.NotReplayed > 0:
		return errors.New("decisions come out otherwise, or cannot be replayed")
	case s.Skipped.Broken+s.Skipped.TooLong+s.Skipped.Newer > 0:
		return errors.New("lines of the logs were skipped that may be decisions")
	case s.Decisions == 0:
		return errors.New("the logs have no decisions that are selected")
	}
	return nil
}

// options returns the options of the flags. Progress is reported for long work.
func (f *replayFlags) options(progress io.Writer) (replay.Options, error) {
	options := replay.Options{Project: f.project, Examples: f.show}
	if f.show < 0 {
		return options, fmt.Errorf("--show: %d is no number of examples", f.show)
	}
	for _, limit := range []struct {
		name, text string
		target     *time.Time
	}{{"since", f.since, &options.Since}, {"until", f.until, &options.Until}} {
		if limit.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, limit.text)
		if ago, wrong := time.ParseDuration(limit.text); wrong == nil && ago >= 0 {
			at, err = policytime.MachineNow().Add(-ago), nil
		}
		if err != nil {
			return options, fmt.Errorf("--%s: %q is neither a duration such as 24h nor a time such as 2026-01-05T12:00:00Z", limit.name, limit.text)
		}
		*limit.target = at
	}
	if !options.Since.IsZero() && !options.Until.IsZero() && !options.Since.Before(options.Until) {
		return options, fmt.Errorf("--since: %s is not before --until, %s, so no decision is selected", f.since, f.until)
	}
	const interval = 5 * time.Second
	next := policytime.MachineNow().Add(interval)
	options.Progress = func(lines int) {
		if now := policytime.MachineNow(); now.After(next) {
			next = now.Add(interval)
			fmt.Fprintf(progress, "%d records\n", lines)
		}
	}
	return options, nil
}

// replayLogs returns the logs of files; - is the standard input.
func replayLogs(stdin io.Reader, names []string) []replay.Log {
	logs := make([]replay.Log, len(names))
	for i, name := range names {
		logs[i] = replay.Log{Name: name, Open: func() (io.ReadCloser, error) {
			if name == "-" {
				return io.NopCloser(stdin), nil
			}
			return os.Open(name)
		}}
	}
	return logs
}

// replayWarnings returns what was not read.
func replayWarnings(s *replay.Summary) []string {
	warnings := append([]string(nil), s.Problems...)
	for _, skipped := range []struct {
		count int
		what  string
	}{
		{s.Skipped.Broken, "lines with invalid records"},
		{s.Skipped.Incomplete, "incomplete lines at the end of a log"},
		{s.Skipped.TooLong, "lines that are too long"},
		{s.Skipped.Newer, "records of a later version of Sluice: use its command line"},
	} {
		if skipped.count > 0 {
			warnings = append(warnings, fmt.Sprintf("skipped %d %s", skipped.count, skipped.what))
		}
	}
	return warnings
}

// printReplay prints a summary.
func printReplay(w io.Writer, s *replay.Summary) error {
	fmt.Fprintf(w, "%d decisions", s.Decisions)
	if s.Decisions > 0 {
		fmt.Fprintf(w, " from %s to %s", printer.FormatSecond(s.From, time.UTC), printer.FormatSecond(s.To, time.UTC))
	}
	fmt.Fprintln(w)
	for _, line := range []struct {
		name  string
		count int
	}{
		{"the same", s.Same},
		{"now denied", s.NowDenied},
		{"now allowed", s.NowAllowed},
		{"changed otherwise", s.Changed},
		{"cannot be replayed", s.NotReplayed},
	} {
		fmt.Fprintf(w, "  %-19s %8d\n", line.name, line.count)
	}
	for _, reason := range s.Reasons {
		fmt.Fprintf(w, "    %8d: %s\n", reason.Count, printer.Sanitize(reason.Reason))
	}
	if len(s.Policies) > 0 {
		table := printer.Table{Columns: printer.Columns("Policy", "Now denied", "Now allowed", "Changed", "Cannot be replayed")}
		for _, p := range s.Policies {
			table.Rows = append(table.Rows, []string{
				p.Policy, strconv.Itoa(p.NowDenied), strconv.Itoa(p.NowAllowed), strconv.Itoa(p.Changed), strconv.Itoa(p.NotReplayed),
			})
		}
		fmt.Fprintln(w)
		if err := table.Write(w, true); err != nil {
			return err
		}
	}
	for i := range s.Examples {
		printReplayExample(w, &s.Examples[i])
	}
	return nil
}

func printReplayExample(w io.Writer, e *replay.Example) {
	what := map[replay.Outcome]string{replay.NowDenied: "Now denied", replay.NowAllowed: "Now allowed", replay.Changed: "Changed"}[e.Outcome]
	fmt.Fprintf(w, "\n%s: %s\n", what, printer.Sanitize(fmt.Sprintf("%s %s/%s of %s by %s, %s, in project %s",
		e.Kind, e.Namespace, e.Name, e.User, e.Webhook, printer.FormatSecond(e.Time, time.UTC), e.Project)))
	for _, part := range []struct{ sign, text string }{{"-", e.Before}, {"+", e.Now}} {
		if part.text == e.Before && e.Before == e.Now {
			continue
		}
		for line := range strings.SplitSeq(part.text, "\n") {
			if line != "" {
				fmt.Fprintf(w, "  %s %s\n", part.sign, printer.Sanitize(line))
			}
		}
	}
	if e.Before == e.Now {
		fmt.Fprintf(w, "  the object is changed otherwise by policy %s\n", printer.Sanitize(strings.Join(e.Policies, ", ")))
	}
}
