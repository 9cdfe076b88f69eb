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

// newLease returns the Lease of a replica, as the replica renews it.
func newLease(t *testing.T, name string, renewal int, renewed time.Time) coordinationv1.Lease {
	t.Helper()
	text, err := Encode(NewReport("v1", []engine.Version{newVersion("a")}, nil))
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

// Clocks that differ between nodes do not end a replica. Guards invariant 11 of the design.
func TestClocksOfReplicasMayDiffer(t *testing.T) {
	const name = LeasePrefix + "a"
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 24 * 365 * time.Hour} {
		var o Observer
		now := start
		observe := func(renewal int) State {
			t.Helper()
			states := o.Observe([]coordinationv1.Lease{newLease(t, name, renewal, now.Add(skew))}, now)
			if len(states) != 1 {
				t.Fatalf("%d replicas", len(states))
			}
			return states[0]
		}
		if first := observe(1); first.IsExpired(now) {
			t.Errorf("skew %s: expired at the first sight", skew)
		}
		now = now.Add(RenewInterval)
		s := observe(2)
		if !s.IsLive(now) || s.IsLive(now.Add(LeaseDuration)) || s.IsExpired(now) || !s.IsExpired(now.Add(RetentionPeriod)) {
			t.Errorf("skew %s: live %v, expired %v", skew, s.IsLive(now), s.IsExpired(now))
		}
	}
}

func TestInvalidLeasesAreIgnored(t *testing.T) {
	var invalid []string
	o := Observer{Invalid: func(name string, _ error) { invalid = append(invalid, name) }}
	foreign := newLease(t, "another-lease", 1, start)
	forged := newLease(t, LeasePrefix+"forged", 1, start)
	forged.Annotations[v1alpha1.ReplicaReportAnnotation] = `{"format":1}`
	timeless := newLease(t, LeasePrefix+"timeless", 1, start)
	timeless.Spec.RenewTime = nil
	valid := newLease(t, LeasePrefix+"valid", 1, start)
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
