// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/config"
	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/doctor"
	"sluice.dev/cmd/sluice/printer"
)

// The values of --fail-on.
const (
	failOnError   = "error"
	failOnWarning = "warning"
	failOnNever   = "never"
)

func newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation of Sluice and its cluster",
		Long: `Check an installation of Sluice and the cluster below it: versions, CRDs, the webhook as the API
server reaches it, certificates, node pools, GPU agents, policies, projects and mail. Each problem
comes with what to do.

The command changes nothing. Two of its requests are dry runs: a Project that the webhook must
refuse, and a GPU pod outside of projects. It works with any rights, and says which checks lack
one; the ClusterRole sluice:doctor has those of all checks but one. Before Sluice is installed it
checks whether the cluster has what Sluice needs.

The exit status is 0 without errors, 1 with errors (or warnings, with --fail-on warning), and 2 if
the checks could not be made.`,
		Example: `  # Check the cluster of the current context
  sluice doctor

  # Fail a pipeline on warnings too, and keep the report
  sluice doctor --fail-on warning -o json > report.json`,
		Args: func(cmd *cobra.Command, args []string) error { return withExitStatus(2, cobra.NoArgs(cmd, args)) },
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addOutputFlag(cmd, []string{tableFormat, jsonFormat, yamlFormat})
	failOn := failOnError
	addChoiceFlag(cmd, &failOn, "fail-on", "", "Result from which the exit status is 1", []string{failOnError, failOnWarning, failOnNever})
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return withExitStatus(2, err) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := diagnose(cmd.Context(), cmd, cluster)
		if err != nil {
			return withExitStatus(2, err)
		}
		err = output.print(cmd.OutOrStdout(), report, func(w io.Writer) error {
			_, err := io.WriteString(w, doctorText(&report))
			return err
		})
		if err != nil {
			return withExitStatus(2, err)
		}
		return failedChecks(report.Summary, failOn)
	}
	return cmd
}

// diagnose observes the cluster and runs the checks.
func diagnose(ctx context.Context, cmd *cobra.Command, cluster *clusterFlags) (doctor.Report, error) {
	c, err := cluster.connect(cmd)
	if err != nil {
		return doctor.Report{}, err
	}
	source, err := doctor.NewSource(c.config)
	if err != nil {
		return doctor.Report{}, err
	}
	_, notEmbedded := cluster.embeddedDir()
	observation := doctor.Observation{
		CLIVersion: config.Version, Server: c.config.Host, Now: policytime.MachineNow(), PolicyNow: c.clock.Now(), Embedded: notEmbedded == nil,
	}
	correctTimes(ctx, c, &observation)
	if err := doctor.Observe(ctx, source, &observation); err != nil {
		return doctor.Report{}, err
	}
	return doctor.Diagnose(&observation), nil
}

// correctTimes sets the times of an observation by the clock of the API server, as `sluice pause` does: the objects have times of
// the cluster. It changes nothing if the API server does not answer.
func correctTimes(ctx context.Context, c client.Writer, o *doctor.Observation) {
	if _, ahead, err := userAndClock(ctx, c); err == nil {
		o.Now, o.PolicyNow = o.Now.Add(ahead), o.PolicyNow.Add(ahead)
	}
}

// failedChecks returns an error with the exit status 1 if the report has what --fail-on names.
func failedChecks(summary doctor.Summary, failOn string) error {
	switch {
	case summary.Errors > 0 && failOn != failOnNever:
		return withExitStatus(1, fmt.Errorf("checks with errors: %d", summary.Errors))
	case summary.Warnings > 0 && failOn == failOnWarning:
		return withExitStatus(1, fmt.Errorf("checks with warnings: %d", summary.Warnings))
	}
	return nil
}

// doctorText returns the report as text: the areas and checks with problems first.
func doctorText(report *doctor.Report) string {
	var text strings.Builder
	kubernetes := ""
	if report.Kubernetes != "" {
		kubernetes = ", Kubernetes " + report.Kubernetes
	}
	s := report.Summary
	fmt.Fprintf(&text, "%s%s, sluice %s: %s, %s, %d OK, %d skipped\n", printer.Sanitize(report.Server), printer.Sanitize(kubernetes),
		printer.Sanitize(report.Version), countOf(s.Errors, "error"), countOf(s.Warnings, "warning"), s.OK, s.Skipped)
	if !report.Installed {
		text.WriteString("Sluice is not installed in this cluster, as far as is visible: these checks show what the cluster lacks for it.\n")
	}
	for _, area := range report.Areas() {
		text.WriteString("\n" + strings.ToUpper(area[0].Area) + "\n")
		skipped := map[string][]string{} // names by reason
		for i := range area {
			if area[i].Result == doctor.Skipped {
				skipped[area[i].Message] = append(skipped[area[i].Message], area[i].Name)
			}
		}
		for i := range area {
			c := &area[i]
			for _, finding := range c.Findings {
				message := finding.Message
				if finding.Object != "" {
					message = finding.Object + ": " + message
				}
				writeCheckLine(&text, string(finding.Result), c.Name, message)
				fmt.Fprintf(&text, "  %-8s do: %s\n", "", printer.Sanitize(finding.Do))
			}
			switch {
			case c.MoreFindings > 0:
				writeCheckLine(&text, "", c.Name, fmt.Sprintf("and %d more", c.MoreFindings))
			case c.Result == doctor.Skipped:
				if names := skipped[c.Message]; len(names) > 0 { // once for all checks with this reason
					writeCheckLine(&text, string(c.Result), strings.Join(names, ", "), c.Message)
					delete(skipped, c.Message)
				}
			case len(c.Findings) == 0:
				writeCheckLine(&text, string(c.Result), c.Name, c.Message)
			}
		}
	}
	return text.String()
}

func writeCheckLine(text *strings.Builder, result, name, message string) {
	fmt.Fprintf(text, "  %-8s %s: %s\n", result, name, printer.Sanitize(message))
}

// countOf returns a number with its noun: "1 error", "2 errors".
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// exitError is an error with an exit status other than 1.
type exitError struct {
	error
	status int
}

// Unwrap returns the error itself.
func (e exitError) Unwrap() error { return e.error }

// withExitStatus returns the error with an exit status; nil for none.
func withExitStatus(status int, err error) error {
	if err == nil {
		return nil
	}
	return exitError{err, status}
}

// ExitStatus returns the exit status of the program for the error of a command.
func ExitStatus(err error) int {
	var own exitError
	if errors.As(err, &own) {
		return own.status
	}
	return 1
}
