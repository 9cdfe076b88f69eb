// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

// fakeLeases are the Leases of the cluster, by name.
type fakeLeases struct {
	client.Client
	leases map[string]*coordinationv1.Lease
	writes int
	// failing is the error of each creation, if it is set.
	failing error
}

func (f *fakeLeases) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, lease := range f.leases {
		items := &list.(*coordinationv1.LeaseList).Items
		*items = append(*items, *lease.DeepCopy())
	}
	return nil
}

func (f *fakeLeases) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if f.failing != nil {
		return f.failing
	}
	f.writes++
	lease := object.(*coordinationv1.Lease)
	lease.ResourceVersion = strconv.Itoa(f.writes)
	f.leases[lease.Name] = lease.DeepCopy()
	return nil
}

func (f *fakeLeases) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	lease := f.leases[object.GetName()]
	if lease == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, object.GetName())
	}
	f.writes++
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	lease.ResourceVersion = strconv.Itoa(f.writes)
	return json.Unmarshal(data, lease)
}

// report returns the report in a Lease.
func (f *fakeLeases) report(t *testing.T, name string) replica.Report {
	t.Helper()
	report, err := replica.Decode(f.leases[name].Annotations[v1alpha1.ReplicaReportAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func newTestReporter(t *testing.T, leases *fakeLeases) *replicaReporter {
	t.Helper()
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &replicaReporter{client: leases, engine: e, counter: &replica.Counter{}, logger: logr.Discard()}
}

var reportedPolicy = engine.Source{Name: "team", Rego: "package team\ndeny contains \"x\"\n", Generation: 1}

// A replica reports at once which policies are in force, and the rest at each renewal. Each start has a Lease of its own, which
// lifecycle alone deletes. Guards invariants 10 and 11 of the design.
func TestReplicaReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &fakeLeases{leases: map[string]*coordinationv1.Lease{}}
		first := newTestReporter(t, leases)
		step := func(r *replicaReporter) {
			t.Helper()
			if err := r.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		step(first)
		if leases.writes > 0 {
			t.Fatalf("%d writes before the policies are loaded", leases.writes)
		}
		first.engine.Update([]engine.Source{reportedPolicy})
		step(first)
		if leases.writes != 1 {
			t.Fatalf("with policies: %d writes", leases.writes)
		}
		// A query of the increase ignores the first value of a series.
		if n, err := testutil.GatherAndCount(metrics.Registry, "sluice_policy_violations_total"); err != nil || n != 1 {
			t.Errorf("%d series of violations (%v), want one with 0", n, err)
		}
		set, _ := first.engine.Current()
		first.counter.Add(set.Versions()[0], v1alpha1.PolicyExample{Time: metav1.Now(), Project: "a", Kind: "Pod", Namespace: "a"})
		step(first)
		if leases.writes != 1 {
			t.Errorf("%d writes, and violations wait for the renewal", leases.writes)
		}
		changed := reportedPolicy
		changed.Generation = 2
		first.engine.Update([]engine.Source{changed})
		step(first)
		if leases.writes != 2 {
			t.Errorf("%d writes, and another policy does not wait", leases.writes)
		}
		time.Sleep(2 * replica.RenewInterval)
		step(first)
		if leases.writes != 3 {
			t.Errorf("%d writes after the interval", leases.writes)
		}
		if err := first.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if report := leases.report(t, first.lease); !report.Ended {
			t.Errorf("the last report: %+v", report)
		}

		second := newTestReporter(t, leases)
		second.engine.Update([]engine.Source{reportedPolicy})
		step(second)
		former := second.lease
		delete(leases.leases, former)
		time.Sleep(2 * replica.RenewInterval)
		if err := second.step(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("its Lease was deleted: %v", err)
		}
		time.Sleep(2 * replica.RenewInterval)
		step(second)
		if second.lease == "" || second.lease == former {
			t.Errorf("it continues with the Lease %q, which was deleted", second.lease)
		}
	})
}

// A replica reports at once which data a policy lacks.
func TestMissingDataIsReported(t *testing.T) {
	leases := &fakeLeases{leases: map[string]*coordinationv1.Lease{}}
	r := newTestReporter(t, leases)
	source := reportedPolicy
	source.Rego = "package team\n\ndeny contains \"no\" if data.config.teams.closed"
	r.engine.Update([]engine.Source{source})
	if err := r.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if missing := leases.report(t, r.lease).Missing; len(missing) != 1 || missing[0].Data != "data.config.teams does not exist" {
		t.Errorf("without data: %+v", missing)
	}
	config, err := engine.NewConfigData("teams", map[string]any{"closed": true})
	if err != nil {
		t.Fatal(err)
	}
	r.engine.UpdateData(engine.NewData([]engine.ConfigData{config}, nil))
	if err := r.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if missing := leases.report(t, r.lease).Missing; len(missing) > 0 {
		t.Errorf("with data: %+v", missing)
	}
}
