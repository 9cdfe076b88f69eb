// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
)

// longestRelease is how long the brake can be released at once. Who wants none at
// all says so in lifecycle's configuration.
const longestRelease = 7 * 24 * time.Hour

// ErrNotEngaged is that there is nothing to release.
var ErrNotEngaged = errors.New("the brake is not engaged: workloads are stopped at their limits as always")

// ParseLength reads for how long the brake is to be released: a second to seven days.
func ParseLength(text string) (time.Duration, error) {
	length, err := period.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	if length.Length() > longestRelease {
		return 0, fmt.Errorf("%q: want at most 7d; to have no brake at all, set stopping.brake.percent to 100 in lifecycle's configuration", text)
	}
	return length.Length(), nil
}

// Release releases the brake for a length of policy time from now. One that is
// released already is then released until the new end, be it earlier. It fails
// with [ErrNotEngaged] where the brake is neither.
func Release(ctx context.Context, c client.Client, now time.Time, length time.Duration) (Report, error) {
	var released Report
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := read(ctx, c)
		if err != nil {
			return err
		}
		if state := clocks.BrakeStateOf(object); !state.Engaged() && !state.Released(now) {
			return ErrNotEngaged
		}
		// With a lock: lifecycle may write at the same time that it is engaged.
		patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
		object.Data[clocks.BrakeReleasedUntil] = now.Add(length).UTC().Format(time.RFC3339)
		if err := c.Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			return fmt.Errorf("releasing the brake: %w%s", err, whoMay(err))
		}
		released = reportOf(object, now)
		return nil
	})
	return released, err
}
