// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/timelimit/controller"
)

const brakeHelp = `Show or release the stop limiter of a department.

The stop limiter of a department engages when a changed limit would stop very many
of its workloads within an hour, which usually means that the limit is wrong. Sluice
then stops none of these workloads until an administrator releases the stop limiter.
All others, and those of other departments, are stopped at their limits.`

func newBrakeShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show in which departments the stop limiter is engaged",
		Long:  "Show in which departments the stop limiter is or was engaged, and until when it is released.",
		Example: `  # Show the stop limiter
  sluice brake show`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		report, err := getStopLimiterReport(cmd.Context(), c, c.clock.Now())
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), report, report.text(time.Local))
	}
	return cmd
}

func newBrakeReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release DEPARTMENT --for DURATION",
		Short: "Release the stop limiter of a department for a while",
		Long: `Release the stop limiter of a department, so that Sluice stops its workloads at their
changed limits, for a while of policy time. After that the stop limiter engages again if
very many workloads would still be stopped.`,
		Example: `  # Release the stop limiter of a department for two hours
  sluice brake release h2-students --for 2h`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	duration := cmd.Flags().String("for", "", "Duration of the release, such as 2h; at most 7d (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *duration == "" {
			return errors.New("--for: required; give the duration, such as 2h")
		}
		length, err := parseReleaseDuration(*duration)
		if err != nil {
			return fmt.Errorf("--for: %w", err)
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		status, err := releaseStopLimiter(cmd.Context(), c, args[0], c.clock.Now(), length)
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), status, status.text(time.Local))
	}
	return cmd
}

// stopLimiterReport is the stop limiter of all departments as the commands print it.
type stopLimiterReport struct {
	// Departments are those in which the stop limiter was engaged, sorted by name.
	Departments []stopLimiterStatus `json:"departments"`
}

// stopLimiterStatus is the stop limiter of a department as the commands print it. Times
// are policy time in UTC.
type stopLimiterStatus struct {
	Department string    `json:"department"`
	Now        time.Time `json:"now"`
	Engaged    bool      `json:"engaged"`
	// EngagedAt is the last time at which it engaged; nil for never.
	EngagedAt *time.Time `json:"engagedAt,omitempty"`
	// StopsDue of the department's RunningWorkloads were to be stopped within an hour then,
	// at an end that was brought forward.
	StopsDue         int `json:"stopsDue,omitempty"`
	RunningWorkloads int `json:"runningWorkloads,omitempty"`
	// ReleasedUntil is the end of the last release; nil for never.
	ReleasedUntil *time.Time `json:"releasedUntil,omitempty"`
	Released      bool       `json:"released"`
}

// getStopLimiterReport returns the stop limiter at a policy time.
func getStopLimiterReport(ctx context.Context, c client.Reader, now time.Time) (stopLimiterReport, error) {
	object, err := getStopLimiterConfigMap(ctx, c)
	if err != nil {
		return stopLimiterReport{}, err
	}
	report := stopLimiterReport{Departments: []stopLimiterStatus{}}
	for _, department := range controller.StopLimiterDepartments(object) {
		report.Departments = append(report.Departments, newStopLimiterStatus(object, department, now))
	}
	return report, nil
}

// getStopLimiterConfigMap returns an empty ConfigMap if the stop limiter never
// engaged.
func getStopLimiterConfigMap(ctx context.Context, c client.Reader) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: controller.StopLimiterConfigMapName}
	if err := client.IgnoreNotFound(c.Get(ctx, key, object)); err != nil {
		return nil, fmt.Errorf("get the stop limiter: %w", explainForbidden(err, stopLimiterAccessHint))
	}
	return object, nil
}

func newStopLimiterStatus(object *corev1.ConfigMap, department string, now time.Time) stopLimiterStatus {
	state := controller.ParseStopLimiterState(object, department)
	return stopLimiterStatus{
		Department: department,
		Now:        now.UTC().Truncate(time.Second), Engaged: state.IsEngaged(), Released: state.IsReleased(now),
		StopsDue: state.Due, RunningWorkloads: state.Running,
		EngagedAt:     optionalTime(&metav1.Time{Time: state.EngagedAt}),
		ReleasedUntil: optionalTime(&metav1.Time{Time: state.ReleasedUntil}),
	}
}

const stopLimiterAccessHint = "the stop limiter is for administrators of the cluster, who may get and patch the ConfigMap " +
	controller.StopLimiterConfigMapName + " in namespace " + v1alpha1.SystemNamespace

// maxRelease limits one release.
const maxRelease = 7 * 24 * time.Hour

var errStopLimiterNotEngaged = errors.New("the stop limiter is not engaged in this department: workloads are stopped at their limits")

// parseReleaseDuration parses the duration of a release, one second to seven days.
func parseReleaseDuration(text string) (time.Duration, error) {
	length, err := period.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	if length.Length() > maxRelease {
		return 0, fmt.Errorf("%q: want at most 7d; "+
			"to disable the stop limiter, set stopping.stopLimiter.percent to 100 in lifecycle's configuration", text)
	}
	return length.Length(), nil
}

// releaseStopLimiter releases the stop limiter of a department for a duration of policy
// time from now. It replaces an earlier release. It fails with
// [errStopLimiterNotEngaged] where the stop limiter is neither engaged nor released.
func releaseStopLimiter(
	ctx context.Context, c client.Client, department string, now time.Time, length time.Duration,
) (stopLimiterStatus, error) {
	var released stopLimiterStatus
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := getStopLimiterConfigMap(ctx, c)
		if err != nil {
			return err
		}
		state := controller.ParseStopLimiterState(object, department)
		if !state.IsEngaged() && !state.IsReleased(now) {
			return errStopLimiterNotEngaged
		}
		// Lifecycle writes the same ConfigMap.
		patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
		state.ReleasedUntil = now.Add(length).UTC().Truncate(time.Second)
		state.Store(object, department)
		if err := c.Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			return fmt.Errorf("release the stop limiter: %w", explainForbidden(err, stopLimiterAccessHint))
		}
		released = newStopLimiterStatus(object, department, now)
		return nil
	})
	return released, err
}

// text returns the report as text, with times in zone.
func (r stopLimiterReport) text(zone *time.Location) string {
	var text strings.Builder
	for _, s := range r.Departments {
		text.WriteString(s.text(zone))
	}
	if text.Len() == 0 {
		return "The stop limiter is not engaged.\n"
	}
	return text.String()
}

// text returns the status as text, with times in zone.
func (s stopLimiterStatus) text(zone *time.Location) string {
	var text strings.Builder
	switch {
	case s.Engaged:
		fmt.Fprintf(&text, "The stop limiter is engaged in department %s since %s: workloads with a shortened limit are not stopped.\n",
			s.Department, printer.FormatSecond(*s.EngagedAt, zone))
		fmt.Fprintf(&text, "%d of %d running workloads were to be stopped within an hour at a shortened limit.\n", s.StopsDue, s.RunningWorkloads)
		fmt.Fprintf(&text, "To stop them nevertheless: sluice brake release %s --for 2h\n", s.Department)
	case s.Released:
		fmt.Fprintf(&text, "The stop limiter of department %s is released until %s (%s): workloads are stopped at their limits.\n",
			s.Department, printer.FormatSecond(*s.ReleasedUntil, zone), printer.FormatDuration(s.ReleasedUntil.Sub(s.Now)))
	default:
		fmt.Fprintf(&text, "The stop limiter is not engaged in department %s.\n", s.Department)
	}
	if !s.Engaged && s.EngagedAt != nil {
		fmt.Fprintf(&text, "It last engaged at %s, when %d of %d running workloads were to be stopped within an hour at a shortened limit.\n",
			printer.FormatSecond(*s.EngagedAt, zone), s.StopsDue, s.RunningWorkloads)
	}
	return text.String()
}
