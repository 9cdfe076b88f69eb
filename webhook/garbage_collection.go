// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"os"
	"runtime/debug"
)

const (
	// softMemoryLimit is five eighths of what the webhook may take, whatever policies and objects it evaluates. The garbage
	// collector runs more often above it; it is no hard limit.
	softMemoryLimit = 320 << 20
	// gcPercent is how much garbage may be left below softMemoryLimit, in percent of the memory in use. With the 100 of Go
	// the collector runs three times as often while a policy allocates, and takes a processor from the requests of others.
	gcPercent = 400
)

// limitGarbageCollection sets what the environment does not set.
func limitGarbageCollection() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
