// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/timelimit/controller"
)

func brakeCommand() *cobra.Command {
	var options ClusterOptions
	var output string
	cmd := &cobra.Command{
		Use:   "brake",
		Short: "Show the brake, or release it",
		Long: `brake shows whether the brake is engaged. It is where very many workloads would be
stopped within an hour, which is a mistake in somebody's limits far more often than
it is meant: then none is, until an administrator releases the brake.`,
		Example: `  sluice brake
  sluice brake release --for 2h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			report, err := GetStopLimiterStatus(cmd.Context(), c, c.Clock.Now())
			if err != nil {
				return err
			}
			return printStopLimiterStatus(cmd.OutOrStdout(), report, output)
		},
	}
	addClusterFlags(cmd, &options)
	addOutputFlag(cmd, &output, "text", "json")
	cmd.AddCommand(brakeReleaseCommand())
	return cmd
}

func brakeReleaseCommand() *cobra.Command {
	var options ClusterOptions
	var length, output string
	cmd := &cobra.Command{
		Use:   "release --for DURATION",
		Short: "Have workloads stopped for a while, however many they are",
		Long: `release lets what the brake holds be stopped, for a while of policy time. When that
is over, the brake is engaged again if very many are still to be stopped.`,
		Example: "  sluice brake release --for 2h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length == "" {
				return errors.New("--for: say for how long, such as 2h")
			}
			span, err := ParseReleaseDuration(length)
			if err != nil {
				return fmt.Errorf("--for: %w", err)
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			report, err := ReleaseStopLimiter(cmd.Context(), c, c.Clock.Now(), span)
			if err != nil {
				return err
			}
			return printStopLimiterStatus(cmd.OutOrStdout(), report, output)
		},
	}
	addClusterFlags(cmd, &options)
	cmd.Flags().StringVar(&length, "for", "", "for how long, such as 2h; at most 7d")
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

func printStopLimiterStatus(output io.Writer, report StopLimiterStatus, form string) error {
	if form == "json" {
		return printer.WriteJSON(output, report)
	}
	_, err := io.WriteString(output, report.Text(time.Local))
	return err
}

// StopLimiterStatus is the brake as it is shown. Times are policy time, in UTC.
type StopLimiterStatus struct {
	Now time.Time `json:"now"`
	// Engaged is true while no workload is stopped.
	Engaged bool `json:"engaged"`
	// EngagedAt is when it was engaged last; nil for never.
	EngagedAt *time.Time `json:"engagedAt,omitempty"`
	// StopsDue is how many of the Running workloads were to be stopped within an hour then.
	StopsDue         int `json:"due,omitempty"`
	RunningWorkloads int `json:"running,omitempty"`
	// ReleasedUntil is until when it was released last; nil for never.
	ReleasedUntil *time.Time `json:"releasedUntil,omitempty"`
	// Released is true while nothing engages it.
	Released bool `json:"released"`
}

// GetStopLimiterStatus reads the brake as of an instant of policy time. A brake that was never
// engaged is no error.
func GetStopLimiterStatus(ctx context.Context, c client.Reader, now time.Time) (StopLimiterStatus, error) {
	object, err := getStopLimiterConfigMap(ctx, c)
	if err != nil {
		return StopLimiterStatus{}, err
	}
	return stopLimiterStatus(object, now), nil
}

func getStopLimiterConfigMap(ctx context.Context, c client.Reader) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: controller.StopLimiterConfigMapName}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the brake: %w%s", err, stopLimiterAccessHint(err))
	}
	return object, nil
}

func stopLimiterStatus(object *corev1.ConfigMap, now time.Time) StopLimiterStatus {
	state := controller.ParseStopLimiterState(object)
	return StopLimiterStatus{
		Now: now.UTC().Truncate(time.Second), Engaged: state.IsEngaged(), EngagedAt: optionalTime(state.EngagedAt), StopsDue: state.Due, RunningWorkloads: state.Running,
		ReleasedUntil: optionalTime(state.ReleasedUntil), Released: state.IsReleased(now),
	}
}

func optionalTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// stopLimiterAccessHint says whose business the brake is.
func stopLimiterAccessHint(err error) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("; the brake is for administrators of the cluster, who may get and patch the ConfigMap %s in namespace %s",
			controller.StopLimiterConfigMapName, v1alpha1.SystemNamespace)
	}
	return ""
}

// maxRelease is how long the brake can be released at once. Who wants none at
// all says so in lifecycle's configuration.
const maxRelease = 7 * 24 * time.Hour

// ErrStopLimiterNotEngaged is that there is nothing to release.
var ErrStopLimiterNotEngaged = errors.New("the brake is not engaged: workloads are stopped at their limits as always")

// ParseReleaseDuration reads for how long the brake is to be released: a second to seven days.
func ParseReleaseDuration(text string) (time.Duration, error) {
	length, err := period.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	if length.Length() > maxRelease {
		return 0, fmt.Errorf("%q: want at most 7d; to have no brake at all, set stopping.brake.percent to 100 in lifecycle's configuration", text)
	}
	return length.Length(), nil
}

// ReleaseStopLimiter releases the brake for a length of policy time from now. One that is
// released already is then released until the new end, be it earlier. It fails
// with [ErrNotEngaged] where the brake is neither.
func ReleaseStopLimiter(ctx context.Context, c client.Client, now time.Time, length time.Duration) (StopLimiterStatus, error) {
	var released StopLimiterStatus
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := getStopLimiterConfigMap(ctx, c)
		if err != nil {
			return err
		}
		if state := controller.ParseStopLimiterState(object); !state.IsEngaged() && !state.IsReleased(now) {
			return ErrStopLimiterNotEngaged
		}
		// With a lock: lifecycle may write at the same time that it is engaged.
		patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
		object.Data[controller.StopLimiterReleasedUntil] = now.Add(length).UTC().Format(time.RFC3339)
		if err := c.Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			return fmt.Errorf("releasing the brake: %w%s", err, stopLimiterAccessHint(err))
		}
		released = stopLimiterStatus(object, now)
		return nil
	})
	return released, err
}

// Text is the report for a person, in lines; times in zone.
func (r StopLimiterStatus) Text(zone *time.Location) string {
	var text strings.Builder
	switch {
	case r.Engaged:
		fmt.Fprintf(&text, "the brake is engaged since %s: no workload is stopped\n", printer.FormatSecond(*r.EngagedAt, zone))
		fmt.Fprintf(&text, "%d of %d running workloads were to be stopped within an hour\n", r.StopsDue, r.RunningWorkloads)
		fmt.Fprintln(&text, "if that is meant: sluice brake release --for 2h")
	case r.Released:
		fmt.Fprintf(&text, "the brake is released until %s (%s): workloads are stopped, however many\n",
			printer.FormatSecond(*r.ReleasedUntil, zone), printer.FormatDuration(r.ReleasedUntil.Sub(r.Now)))
	default:
		fmt.Fprintln(&text, "the brake is not engaged")
	}
	if !r.Engaged && r.EngagedAt != nil {
		fmt.Fprintf(&text, "it was engaged last at %s, when %d of %d running workloads were to be stopped within an hour\n",
			printer.FormatSecond(*r.EngagedAt, zone), r.StopsDue, r.RunningWorkloads)
	}
	return text.String()
}
