// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Observer remembers the Leases that it has seen. The zero value is ready; it is not safe for
// concurrent use.
type Observer struct {
	// Invalid receives the Leases that are ignored, once for each change, if it is set.
	Invalid func(name string, err error)

	seen map[string]*observation
}

type observation struct {
	resourceVersion string
	state           State
	err             error
}

// State is a replica as an Observer sees it.
type State struct {
	// Lease is the name of the replica's Lease.
	Lease  string
	Report Report
	// Seen is when the Observer saw the present state of the Lease first, on its own clock.
	Seen time.Time
	// renewed is when the replica wrote it, on the replica's clock, and age the time from then to
	// Seen.
	renewed time.Time
	age     time.Duration
}

// Observe returns the replicas with a valid report, by the names of their Leases. It remembers only the
// given Leases.
func (o *Observer) Observe(leases []coordinationv1.Lease, now time.Time) []State {
	current := make(map[string]*observation, len(leases))
	var states []State
	for i := range leases {
		lease := &leases[i]
		before := o.seen[lease.Name]
		if before == nil || before.resourceVersion != lease.ResourceVersion {
			before = newObservation(lease, before, now)
			if before.err != nil && o.Invalid != nil {
				o.Invalid(lease.Name, before.err)
			}
		}
		current[lease.Name] = before
		if before.err == nil {
			states = append(states, before.state)
		}
	}
	o.seen = current
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Lease, b.Lease) })
	return states
}

// Expired returns the names of the Leases, valid or not, that did not change for the retention period.
func (o *Observer) Expired(now time.Time) []string {
	var names []string
	for name, seen := range o.seen {
		if seen.state.IsExpired(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func newObservation(lease *coordinationv1.Lease, before *observation, now time.Time) *observation {
	o := &observation{resourceVersion: lease.ResourceVersion, state: State{Lease: lease.Name, Seen: now}}
	if !strings.HasPrefix(lease.Name, LeasePrefix) || lease.Spec.RenewTime == nil {
		o.err = errNoReport
		return o
	}
	o.state.renewed = lease.Spec.RenewTime.Time
	if before == nil {
		// It can be of a replica that ended long ago. Only here two clocks are compared.
		o.state.age = min(max(now.Sub(o.state.renewed), 0), RetentionPeriod)
	}
	o.state.Report, o.err = Decode(lease.Annotations[v1alpha1.ReplicaReportAnnotation])
	return o
}

// errNoReport reports a Lease with the labels, but not the name or the time, of a replica's.
var errNoReport = errors.New("it is no Lease of a replica")

// IsLive reports whether the replica answers requests, as far as is known.
func (s State) IsLive(now time.Time) bool {
	return !s.Report.Ended && now.Sub(s.Seen)+s.age < LeaseDuration
}

// IsExpired reports whether lifecycle may delete the Lease. It relies on the observer's clock alone.
func (s State) IsExpired(now time.Time) bool { return now.Sub(s.Seen) >= RetentionPeriod }

// Has reports whether the replica has a version of a policy in force. known is false if its report
// omits the policy.
func (s State) Has(version engine.Version, set string) (has, known bool) {
	if s.Report.PolicySet == set {
		return true, true
	}
	for _, v := range s.Report.Policies {
		if v.Policy == version.Policy {
			return v == Version(version), true
		}
	}
	return false, s.Report.Omitted.Policies == 0
}
