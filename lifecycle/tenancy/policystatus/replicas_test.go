// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

// The Lease of a replica that ended is deleted once the status includes what it counted, and not before: neither that of a replica
// that renews it, nor of one that lifecycle sees for the first time, whatever time it has. Guards invariants 8 and 11 of the design.
func TestLeasesOfEndedReplicasAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := api.NewScheme()
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e.Update([]engine.Source{{Name: "team", Rego: "package team\ndeny contains \"x\"\n", Generation: 1}})
		set, _ := e.Current()
		version, _ := set.Version("team")
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "team", Generation: 1}}
		old := func(name string, version engine.Version) *reporter {
			r := &reporter{name: replica.LeasePrefix + name, version: version, renewed: time.Now().Add(-1000 * time.Hour)}
			r.violate("x", 1)
			return r
		}
		live, counted, outdated, empty := old("live", version), old("counted", version), old("outdated", newTestVersion(0)), old("empty", version)
		empty.counter.Reset()
		c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(policy).WithObjects(policy).Build()
		create := func(lease coordinationv1.Lease) {
			t.Helper()
			lease.ResourceVersion = ""
			if err := c.Create(t.Context(), &lease); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range []*reporter{live, counted, outdated, empty} {
			create(r.lease(t))
		}
		malformed := counted.lease(t)
		malformed.Name, malformed.Annotations = replica.LeasePrefix+"malformed", nil
		create(malformed)
		r := &Reconciler{Client: c, Policies: e}
		check := func(what string, want ...string) {
			t.Helper()
			if _, err := r.readReplicas(t.Context()); err != nil {
				t.Fatal(err)
			}
			var leases coordinationv1.LeaseList
			if err := c.List(t.Context(), &leases); err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range leases.Items {
				names = append(names, leases.Items[i].Name[len(replica.LeasePrefix):])
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("%s: %v, want %v", what, names, want)
			}
		}
		check("at the first sight", "counted", "empty", "live", "malformed", "outdated")
		time.Sleep(replica.RetentionPeriod)
		renewed := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: live.name}, renewed); err != nil {
			t.Fatal(err)
		}
		renewed.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if err := c.Update(t.Context(), renewed); err != nil {
			t.Fatal(err)
		}
		check("before the status includes it", "counted", "live")

		if err := c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			t.Fatal(err)
		}
		policy.Status.EndedReplicas = &v1alpha1.EndedReplicas{Replicas: []string{counted.name}, Violations: 1}
		if err := c.Status().Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		check("after it", "live")
	})
}
