// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

const (
	// patience is how long the clock of a workload that runs is waited for, in
	// machine time, before its use is put down to nobody.
	patience = time.Minute
	// longestName and longestPool are how long the names of a user and a node pool can
	// be in a record, in characters.
	longestName, longestPool = 1024, 53
)

// attribute finds out whose the stretches are of which that is not known yet. What
// runs waits until its workload is known, and a while for its clock; what has ended
// does not wait for long. What runs of one workload waits no longer than the first
// of it: its cursor is one, and would hide what is not in the records yet.
func (r *Reconciler) attribute(ctx context.Context, namespace string, l *ledger) error {
	first := map[string]time.Time{} // since when a workload runs; zero where it is not waited for
	for _, s := range l.all {
		if s.clock == "" && s.user == "" {
			if name, known := r.Workloads.ClockOf(s.identity(namespace)); known {
				s.clock = name.Name
			}
		}
		if s.clock == "" || !s.to.IsZero() {
			continue
		}
		since := later(s.from, l.since)
		if s.user != "" {
			since = time.Time{}
		}
		if known, others := first[s.clock]; !others || since.Before(known) {
			first[s.clock] = since
		}
	}
	clocks := map[string]*v1alpha1.WorkloadClock{}
	for _, s := range l.all {
		if s.user != "" {
			continue
		}
		waited := l.now.Sub(first[s.clock]) > patience
		if !s.to.IsZero() {
			waited = l.pressed || l.now.Sub(s.to) > writeSpacing
		}
		if s.clock == "" {
			l.complete = false
			if waited && !s.to.IsZero() {
				s.belongTo(s.creator, "")
			}
			continue
		}
		found, looked := clocks[s.clock]
		if !looked {
			found = &v1alpha1.WorkloadClock{}
			if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.clock}, found); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading clock %s/%s: %w", namespace, s.clock, err)
			}
			clocks[s.clock] = found
		}
		switch {
		case found.Status.CreatedBy != "":
			s.belongTo(found.Status.CreatedBy, found.Status.WorkloadType)
		case found.Status.RootUID != "" || waited:
			s.belongTo(s.creator, found.Status.WorkloadType)
		default:
			l.complete = false
		}
	}
	return nil
}

// poolOf is the node pool for which a pod was admitted.
func poolOf(s *stretch) string {
	if s.pool == "" || len(s.pool) > longestPool {
		return Unknown
	}
	return s.pool
}

// belongTo puts a stretch down to a user, as of the type that the pod is labelled,
// else of the workload's: a label may say anything.
func (s *stretch) belongTo(user string, otherwise v1alpha1.WorkloadType) {
	if user == "" || utf8.RuneCountInString(user) > longestName {
		user = Unknown
	}
	s.user, s.as = user, v1alpha1.WorkloadTrain
	for _, kind := range []v1alpha1.WorkloadType{otherwise, s.labelled} {
		if slices.Contains(v1alpha1.WorkloadTypes, kind) {
			s.as = kind
		}
	}
}
