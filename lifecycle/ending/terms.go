// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Terms are what holds for a workload.
type Terms struct {
	// Limits are those of its type in its project; MaxRuntime is the shorter of that
	// and what its pods ask for themselves.
	v1alpha1.Limits
	// Leads are how long before the end its people are warned. There is at least one.
	Leads []time.Duration
	// Spared is true where the project is exempt or held: nothing ends.
	Spared bool
	// Granted are the extensions that were approved and not recorded yet.
	Granted []v1alpha1.ClockExtension
}

// Seen is what is known of a workload now.
type Seen struct {
	// Running is true while at least one GPU pod of it runs.
	Running bool
	// Since is when the first of the pods that run now began, or its namespace was
	// governed, whichever is later. Zero is the instant of the decision.
	Since time.Time
	// Use is how its GPUs are used.
	Use Use
}

// Use is the use of a workload's GPUs.
type Use struct {
	// Known is false where a node of its pods gave no fresh sample, or cannot tell.
	Known bool
	// LastActive is the latest use by any of its pods.
	LastActive time.Time
	// SampledAt is the oldest of its nodes' samples: idleness counts up to here.
	SampledAt time.Time
}

// limited tells whether anything may be stopped by a limit on running time.
func (t *Terms) limited() bool { return !t.Spared && !t.DryRun && !t.MaxRuntime.IsZero() }

// timed tells whether anything may be stopped for want of use.
func (t *Terms) timed() bool { return !t.Spared && !t.DryRun && !t.IdleTimeout.IsZero() }

func (t *Terms) longest() time.Duration  { return slices.Max(t.Leads) }
func (t *Terms) shortest() time.Duration { return slices.Min(t.Leads) }
