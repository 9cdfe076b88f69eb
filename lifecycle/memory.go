// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"os"
	"runtime/debug"
)

// softMemory is up to how much memory the garbage collector is left in peace: what
// is known of 100 000 pods in 20 000 workloads fits in, with the rubbish of reading
// them. It is no bound: where more is needed, more is taken.
const softMemory = 220 << 20

// boundMemory sets that, unless whoever starts the process set GOMEMLIMIT.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemory)
	}
}
