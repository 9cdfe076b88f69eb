// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime

import (
	"context"
	"time"
)

// stepPollInterval is the interval of checks for a step, in machine time.
const stepPollInterval = 100 * time.Millisecond

// NotifySteps calls notify whenever policy time steps or changes its pace, because an instant may be reached earlier then,
// until ctx ends. It returns at once. Outside an embedded cluster it does nothing.
func NotifySteps(ctx context.Context, clock Clock, notify func()) {
	of, ok := clock.(interface{ Timeline() Timeline })
	if !ok {
		return
	}
	segments := len(of.Timeline().Segments)
	go func() {
		ticker := time.NewTicker(stepPollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if current := len(of.Timeline().Segments); current != segments {
				segments = current
				notify()
			}
		}
	}()
}
