// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// lookEvery is how often a condition that is waited for is looked at.
	lookEvery = 100 * time.Millisecond
	// within is how long anything that is waited for may take.
	within = time.Minute
)

// await waits for a condition, and says which one it was where it does not come.
// An error of the condition is only the reason for the next look.
func await(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, lookEvery, within, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		last = err
		return done && err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}
