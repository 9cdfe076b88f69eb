// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"sluice.dev/api/period"
)

// PreemptionSpec sets when Sluice preempts pods of a pool.
type PreemptionSpec struct {
	// MinimumRuntime is the time that a preemptible pod runs at least before its preemption is
	// announced. Default: 10m.
	//
	// +optional
	MinimumRuntime *period.Duration `json:"minimumRuntime,omitempty"`
}

// DefaultMinimumRuntime is the value of preemption.minimumRuntime if a pool does not set it.
const DefaultMinimumRuntime = 10 * time.Minute

// MinimumRuntime returns the time that each preemptible pod of the pool may run before it is preempted.
func (s *NodePoolSpec) MinimumRuntime() time.Duration {
	if s.Preemption == nil || s.Preemption.MinimumRuntime == nil {
		return DefaultMinimumRuntime
	}
	return s.Preemption.MinimumRuntime.Length()
}
