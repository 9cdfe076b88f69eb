// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// newLease returns the Lease of a replica with one quarantine, as the replica renews it.
func newLease(t *testing.T, name string, renewal int, renewed, until time.Time) coordinationv1.Lease {
	t.Helper()
	version := newVersion("a")
	text, err := Encode(NewReport("v1", []engine.Version{version}, []engine.Quarantine{
		{Version: version, Project: "p", Reason: engine.QuarantineTimedOut, Since: until.Add(-engine.QuarantinePeriod), Until: until},
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: strconv.Itoa(renewal), Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// Clocks that differ between nodes neither end a replica nor prolong a quarantine. Guards invariants 10
// and 11 of the design.
func TestClocksOfReplicasMayDiffer(t *testing.T) {
	const name = LeasePrefix + "a"
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 24 * 365 * time.Hour} {
		var o Observer
		now := start
		observe := func(renewal int, remaining time.Duration) State {
			t.Helper()
			theirs := now.Add(skew)
			states := o.Observe([]coordinationv1.Lease{newLease(t, name, renewal, theirs, theirs.Add(remaining))}, now)
			if len(states) != 1 {
				t.Fatalf("%d replicas", len(states))
			}
			return states[0]
		}
		observe(1, 8*time.Minute)
		now = now.Add(RenewInterval)
		s := observe(2, 7*time.Minute)
		if !s.IsLive(now) || s.IsLive(now.Add(LeaseDuration)) || s.IsExpired(now) || !s.IsExpired(now.Add(RetentionPeriod)) {
			t.Errorf("skew %s: live %v, expired %v", skew, s.IsLive(now), s.IsExpired(now))
		}
		if q := s.Quarantines(now); len(q) != 1 || !q[0].Until.Equal(now.Add(7*time.Minute)) {
			t.Errorf("skew %s: %+v, want the end in 7 minutes", skew, q)
		}
		if q := s.Quarantines(now.Add(7 * time.Minute)); len(q) > 0 {
			t.Errorf("skew %s: after its end: %+v", skew, q)
		}
	}
}

// After a restart a replica adopts what one that ended left. A forged or wrong time prolongs it by at most
// one period.
func TestFirstObservationOfAnOldLease(t *testing.T) {
	const name = LeasePrefix + "a"
	for what, tt := range map[string]struct {
		age, remaining, want time.Duration // since the renewal; at the renewal; now
	}{
		"a moment ago":                  {5 * time.Second, 5 * time.Minute, 5*time.Minute - 5*time.Second},
		"ended meanwhile":               {6 * time.Minute, 5 * time.Minute, 0},
		"a clock that is ahead":         {-time.Hour, 5 * time.Minute, 5 * time.Minute},
		"an end beyond the period":      {0, 1000 * time.Hour, engine.QuarantinePeriod},
		"a renewal a long time ago":     {1000 * time.Hour, 5 * time.Minute, 0},
		"an end and a clock both ahead": {-time.Hour, 1000 * time.Hour, engine.QuarantinePeriod},
	} {
		var o Observer
		renewed := start.Add(-tt.age)
		states := o.Observe([]coordinationv1.Lease{newLease(t, name, 1, renewed, renewed.Add(tt.remaining))}, start)
		var got time.Duration
		for _, q := range states[0].Quarantines(start) {
			got = q.Until.Sub(start)
		}
		if got != tt.want {
			t.Errorf("%s: ends in %s, want %s", what, got, tt.want)
		}
		if states[0].IsExpired(start) {
			t.Errorf("%s: expired at the first sight", what)
		}
	}
}

func TestInvalidLeasesAreIgnored(t *testing.T) {
	var invalid []string
	o := Observer{Invalid: func(name string, _ error) { invalid = append(invalid, name) }}
	foreign := newLease(t, "another-lease", 1, start, start)
	forged := newLease(t, LeasePrefix+"forged", 1, start, start)
	forged.Annotations[v1alpha1.ReplicaReportAnnotation] = `{"format":1}`
	timeless := newLease(t, LeasePrefix+"timeless", 1, start, start)
	timeless.Spec.RenewTime = nil
	valid := newLease(t, LeasePrefix+"valid", 1, start, start)
	for range 3 {
		states := o.Observe([]coordinationv1.Lease{valid, foreign, forged, timeless}, start)
		if len(states) != 1 || states[0].Lease != valid.Name {
			t.Errorf("replicas: %+v", states)
		}
	}
	if len(invalid) != 3 {
		t.Errorf("reported %v, want each once", invalid)
	}
}
