// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import "time"

// AdvanceTime lets processes that outlive their pods end earlier by a time. Call it before Run.
func AdvanceTime(by time.Duration) {
	now = func() time.Time { return time.Now().Add(by) }
}
