// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package check

import "time"

// setLimits does nothing: only Linux, on which the webhook and lifecycle run, has the limits.
func setLimits(Limits, int) error { return nil }

var processStart = time.Now() //nolint:forbidigo // machine time

// processorTime returns the time since the process started.
func processorTime() time.Duration { return time.Since(processStart) } //nolint:forbidigo // machine time
