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
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

const pauseHelp = `Pause Sluice for a stated time, or show the pause.

In a pause the denials of policies are warnings; those of built-in policies, and of
policies that replace one, stay denials. No workload is stopped at a time limit, for
idleness or for its start timeout, no pod is evicted for its share or for another pod,
and no project takes a step of its expiry. The clocks count on: what falls due in the
pause ends the shortest lead of the department after it, and is announced again.
Mutation, quotas and admission policies stay in force.

The pause ends by itself. Another pause before its end replaces it, and so prolongs it.
It works while the webhook or lifecycle is down. Times are policy time.`

// shortestPause is the shortest pause that can be requested.
const shortestPause = time.Minute

func newPauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause [--for DURATION --reason TEXT]",
		Short: "Pause denials of policies, time limits, evictions and project expiry, or show the pause",
		Long:  pauseHelp,
		Example: `  # Pause Sluice for two hours
  sluice pause --for 2h --reason "policy vision-team refuses every pod"

  # Show the pause
  sluice pause`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	duration := cmd.Flags().String("for", "", "Duration of the pause, from 1m to 24h, such as 2h")
	reason := cmd.Flags().String("reason", "", "Why, in at most 512 bytes (required with --for)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *duration == "" && *reason != "" {
			return errors.New("--for: required with --reason; give the duration, such as 2h")
		}
		var length time.Duration
		if *duration != "" {
			var err error
			if length, err = parsePause(*duration, *reason); err != nil {
				return err
			}
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		var state pauseState
		if length == 0 {
			state, err = getPause(cmd.Context(), c, c.clock.Now())
		} else {
			state, err = changePause(cmd.Context(), c, c.clock.Now(), func(user string, now time.Time, _ *v1alpha1.Pause) (*v1alpha1.Pause, error) {
				return &v1alpha1.Pause{Since: metav1.NewTime(now), Until: metav1.NewTime(now.Add(length)), By: user, Reason: *reason}, nil
			})
		}
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), state, state.text(time.Local))
	}
	return cmd
}

func newResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause of Sluice early",
		Long: `End a pause of Sluice early. What fell due in the pause ends the shortest lead of its
department after now.`,
		Example: `  # End the pause now
  sluice resume`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		state, err := changePause(cmd.Context(), c, c.clock.Now(), endPause)
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), state, state.text(time.Local))
	}
	return cmd
}

// endPause returns the pause that a user ends now.
func endPause(user string, now time.Time, present *v1alpha1.Pause) (*v1alpha1.Pause, error) {
	if !present.IsInForce(now) {
		return nil, errors.New("Sluice is not paused") //nolint:staticcheck // a name
	}
	ended := present.DeepCopy()
	ended.EndedBy = user
	if ended.Until = metav1.NewTime(now); now.Before(ended.Since.Time) { // the clock of another machine is ahead
		ended.Until = ended.Since
	}
	return ended, nil
}

// parsePause checks the flags of a new pause.
func parsePause(duration, reason string) (time.Duration, error) {
	parsed, err := period.ParseDuration(duration)
	if err != nil {
		return 0, fmt.Errorf("--for: %w", err)
	}
	switch length := parsed.Length(); {
	case length < shortestPause || length > v1alpha1.MaxPause:
		return 0, fmt.Errorf("--for: %s is not from %s to %s", duration, "1m", "24h")
	case reason == "":
		return 0, errors.New("--reason: required with --for; say why, for those who see the pause")
	case len(reason) > 512:
		return 0, fmt.Errorf("--reason: is %d bytes long; at most 512 are allowed", len(reason))
	default:
		return length, nil
	}
}

// pauseState is the pause as the commands print it. Times are policy time in UTC.
type pauseState struct {
	Paused bool      `json:"paused"`
	Now    time.Time `json:"now"`
	// Pause is the present pause or the last one; nil if there was none.
	Pause *v1alpha1.Pause `json:"pause,omitempty"`
}

func newPauseState(parameters *v1alpha1.AdmissionParameters, now time.Time) pauseState {
	pause := parameters.Status.Pause
	return pauseState{Paused: pause.IsInForce(now), Now: now.UTC().Truncate(time.Second), Pause: pause}
}

const pauseAccessHint = "a pause needs the rights to get the AdmissionParameters sluice and to patch its status; " +
	"ClusterRole sluice:pause has them"

func getPause(ctx context.Context, c client.Client, now time.Time) (pauseState, error) {
	parameters, err := getParameters(ctx, c)
	if err != nil {
		return pauseState{}, err
	}
	if _, corrected, err := userAndTime(ctx, c, now); err == nil {
		now = corrected
	}
	return newPauseState(parameters, now), nil
}

// clockTolerance is above the difference of equal clocks: the API server reports whole seconds, and the request takes time.
const clockTolerance = 5 * time.Second

// userAndTime returns the name of the user, and the time of the cluster: now, corrected by as much as the clock of this machine
// differs from that of the API server. A pause by a wrong clock would end too early or begin too late.
func userAndTime(ctx context.Context, c client.Writer, now time.Time) (user string, corrected time.Time, err error) {
	user, difference, err := userAndClock(ctx, c)
	if err != nil {
		return "", now, err
	}
	return user, now.Add(difference).UTC().Truncate(time.Second), nil
}

// userAndClock returns the name of the user, and by how much the clock of the API server is ahead of that of this machine; 0 within
// [clockTolerance].
func userAndClock(ctx context.Context, c client.Writer) (user string, ahead time.Duration, err error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", 0, err
	}
	if at := review.CreationTimestamp; !at.IsZero() {
		if ahead = at.Sub(policytime.MachineNow()); ahead.Abs() <= clockTolerance {
			ahead = 0
		}
	}
	return review.Status.UserInfo.Username, ahead, nil
}

func getParameters(ctx context.Context, c client.Reader) (*v1alpha1.AdmissionParameters, error) {
	var parameters v1alpha1.AdmissionParameters
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the pause: %w; lifecycle creates the object at its first start: is Sluice installed here?", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pause: %w", explainForbidden(err, pauseAccessHint))
	}
	return &parameters, nil
}

// changePause writes the pause that change returns. It depends on the API server alone.
func changePause(
	ctx context.Context, c client.Client, now time.Time, change func(user string, now time.Time, present *v1alpha1.Pause) (*v1alpha1.Pause, error),
) (pauseState, error) {
	user, now, err := userAndTime(ctx, c, now)
	if err != nil {
		return pauseState{}, fmt.Errorf("read your user name: %w", err)
	}
	var state pauseState
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		parameters, err := getParameters(ctx, c)
		if err != nil {
			return err
		}
		before := parameters.DeepCopy()
		if parameters.Status.Pause, err = change(user, now, before.Status.Pause); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.Status().Patch(ctx, parameters, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			return fmt.Errorf("write the pause: %w", explainForbidden(err, pauseAccessHint))
		}
		state = newPauseState(parameters, now)
		return nil
	})
	return state, err
}

// text returns the state as text, with times in zone.
func (s pauseState) text(zone *time.Location) string {
	p := s.Pause
	if p == nil {
		return "Sluice is not paused.\n"
	}
	var text strings.Builder
	if s.Paused {
		fmt.Fprintf(&text, "Sluice is paused until %s: denials of policies are warnings, and time limits,\n"+
			"evictions and project expiry are held.\n", printer.FormatSecond(p.Until.Time, zone))
	} else {
		fmt.Fprintf(&text, "Sluice is not paused. The last pause ended at %s.\n", printer.FormatSecond(p.Until.Time, zone))
	}
	fmt.Fprintf(&text, "Since:  %s\nBy:     %s\nReason: %s\n",
		printer.FormatSecond(p.Since.Time, zone), printer.Sanitize(p.By), printer.Sanitize(p.Reason))
	if p.EndedBy != "" {
		fmt.Fprintf(&text, "Ended by: %s\n", printer.Sanitize(p.EndedBy))
	}
	if s.Paused {
		text.WriteString("To end it now: sluice resume\n")
	}
	return text.String()
}
