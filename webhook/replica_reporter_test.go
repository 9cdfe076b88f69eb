// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

// fakeLeases are the Leases of the cluster, by name.
type fakeLeases struct {
	client.Client
	leases  map[string]*coordinationv1.Lease
	writes  int
	failing error
}

func (f *fakeLeases) Apply(_ context.Context, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	if f.failing != nil {
		return f.failing
	}
	f.writes++
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	if err := json.Unmarshal(raw, lease); err != nil {
		return err
	}
	f.leases[lease.Name] = lease
	return nil
}

// A replica writes its counts once a minute, if they changed, and at its end. Each start has a Lease of its own, and one that was deleted
// is created again with all counts. Guards invariants 10 and 11 of the design.
func TestReplicaReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &fakeLeases{leases: map[string]*coordinationv1.Lease{}}
		e, err := engine.New(engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &replicaReporter{client: leases, engine: e, counter: &replica.Counter{}, logger: logr.Discard()}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.Start(ctx) }()
		check := func(what string, writes int, violations int64) {
			t.Helper()
			synctest.Wait()
			var all []replica.Counts
			for _, lease := range leases.leases {
				counts, err := replica.Decode(lease)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, counts...)
			}
			set, _ := e.Current()
			got := int64(0)
			if set != nil {
				got = replica.Sum([][]replica.Counts{all}, set.Versions()[0], time.Now()).Violations["a"]
			}
			if leases.writes != writes || got != violations || len(leases.leases) > 1 {
				t.Errorf("%s: %d writes, want %d; %d violations, want %d; %d leases", what, leases.writes, writes, got, violations, len(leases.leases))
			}
		}
		check("before the policies are loaded", 0, 0)
		e.Update([]engine.Source{{Name: "team", Rego: "package team\ndeny contains \"x\"\n", Generation: 1}})
		set, _ := e.Current()
		violate := func() {
			r.counter.Add(set.Versions()[0], v1alpha1.PolicyExample{Time: metav1.Now(), Project: "a", Kind: "Pod", Namespace: "a"})
		}
		time.Sleep(reportInterval)
		check("without counts", 0, 0)
		// A query of the increase ignores the first value of a series.
		if n, err := testutil.GatherAndCount(metrics.Registry, "sluice_policy_violations_total"); err != nil || n != 1 {
			t.Errorf("%d series of violations (%v), want one with 0", n, err)
		}
		violate()
		check("before the interval", 0, 0)
		time.Sleep(reportInterval)
		check("after it", 1, 1)
		time.Sleep(100 * reportInterval)
		check("without a change", 1, 1)
		violate()
		leases.failing = errors.New("the API server is away")
		time.Sleep(3 * reportInterval)
		check("while it cannot write", 1, 1)
		leases.failing = nil
		time.Sleep(reportInterval)
		check("when it can again", 2, 2)
		clear(leases.leases)
		violate()
		time.Sleep(reportInterval)
		check("after its Lease was deleted", 3, 3)
		violate()
		end()
		<-ended
		check("at its end", 4, 4)
	})
}
