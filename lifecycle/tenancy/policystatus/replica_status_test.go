// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

var countedVersion = engine.Version{Policy: "team", Generation: 5, Digest: strings.Repeat("0", 2*engine.VersionDigestBytes)}

// newLease returns the Lease of a replica that reported what it counted so long ago.
func newLease(t *testing.T, name string, counter *replica.Counter, age time.Duration) *coordinationv1.Lease {
	t.Helper()
	report, err := counter.Report([]engine.Version{countedVersion})
	if err != nil {
		t.Fatal(err)
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: replica.LeasePrefix + name, Namespace: v1alpha1.SystemNamespace, Labels: replica.Labels(),
			Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: report},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now().Add(-age)}},
	}
}

func violate(counter *replica.Counter, project string, times int) {
	for range times {
		counter.Add(countedVersion, v1alpha1.PolicyExample{Time: metav1.Now(), Project: project, Kind: "Pod", Namespace: project, Name: "a", Message: "no"})
	}
}

// The status of a policy has what all replicas counted, also those that ended, however often lifecycle restarts. Leases that count for
// nothing any more are deleted, and the oldest of too many. Guards invariants 10 and 11 of the design.
func TestReportsOfReplicasAreAddedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := api.NewScheme()
		if err != nil {
			t.Fatal(err)
		}
		var first, second, none replica.Counter
		violate(&first, "x", 3)
		violate(&second, "x", 2)
		violate(&second, "y", 1)
		malformed := newLease(t, "malformed", &none, 0)
		malformed.Annotations[v1alpha1.ReplicaReportAnnotation] = "{"
		timeless := newLease(t, "timeless", &none, 0)
		timeless.Spec.RenewTime = nil
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			newLease(t, "first", &first, 0), newLease(t, "ended", &second, 5*24*time.Hour), newLease(t, "outdated", &none, 10*24*time.Hour), malformed, timeless,
		).Build()
		for range 2 {
			r := &Reconciler{Client: c} // has seen nothing before
			for range 2 {
				reports, err := r.readReports(t.Context(), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				var status v1alpha1.PolicyStatus
				addCounts(&status, replica.Sum(reports, countedVersion, time.Now()), true, metav1.Now())
				want := []v1alpha1.ProjectViolations{{Project: "x", Violations: 5}, {Project: "y", Violations: 1}}
				if diff := cmp.Diff(want, status.ViolationsByProject); diff != "" || status.Violations != 6 || len(status.Examples) != 2 {
					t.Errorf("%d violations, %d examples (-want +got):\n%s", status.Violations, len(status.Examples), diff)
				}
			}
		}
		names := func() (names []string) {
			t.Helper()
			var leases coordinationv1.LeaseList
			if err := c.List(t.Context(), &leases); err != nil {
				t.Fatal(err)
			}
			for i := range leases.Items {
				names = append(names, strings.TrimPrefix(leases.Items[i].Name, replica.LeasePrefix))
			}
			slices.Sort(names)
			return names
		}
		if got, want := names(), []string{"ended", "first", "malformed"}; !slices.Equal(got, want) {
			t.Errorf("leases %v, want %v", got, want)
		}
		for i := range maxLeases {
			if err := c.Create(t.Context(), newLease(t, fmt.Sprintf("more-%d", i), &none, time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := (&Reconciler{Client: c}).readReports(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := names(); len(got) != maxLeases || slices.Contains(got, "ended") || !slices.Contains(got, "first") {
			t.Errorf("%d leases: %v", len(got), got)
		}
	})
}

// The status stays small and correct for any number of projects. Guards invariant 10 of the design.
func TestCountsAreBounded(t *testing.T) {
	total := replica.Total{Violations: map[string]int64{"": 1000}, TimedOut: map[string]int64{"": 5}}
	for i := range 300 {
		total.Violations[fmt.Sprintf("project-%03d", i)] = int64(1 + i%3)
		total.TimedOut[fmt.Sprintf("project-%03d", i)] = 1
	}
	var status v1alpha1.PolicyStatus
	addCounts(&status, total, false, metav1.Now())
	if status.Violations != 1600 || len(status.ViolationsByProject) != 20 || status.ViolationsByProject[0] != (v1alpha1.ProjectViolations{Project: "project-002", Violations: 3}) {
		t.Errorf("%d violations, %+v", status.Violations, status.ViolationsByProject)
	}
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionTimedOut)
	want := "305 evaluations of the last hour took longer than a policy may; the policy had no effect on these objects. By project: " +
		"project-000 1, project-001 1, project-002 1, project-003 1, project-004 1, and 295 more"
	if condition == nil || condition.Message != want {
		t.Errorf("got %+v, want %s", condition, want)
	}
}

// The condition TimedOut comes with the first evaluation that takes too long and goes an hour after the last.
func TestTimedOutCondition(t *testing.T) {
	var status v1alpha1.PolicyStatus
	add := func(timedOut map[string]int64) *metav1.Condition {
		addCounts(&status, replica.Total{TimedOut: timedOut}, true, metav1.Now())
		return meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionTimedOut)
	}
	if got := add(nil); got != nil {
		t.Errorf("without any: %+v", got)
	}
	got := add(map[string]int64{"x": 2, "y": 3})
	if want := "5 evaluations of the last hour took longer than a policy may; these objects were refused. By project: y 3, x 2"; got == nil || got.Message != want ||
		got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonTimedOut {
		t.Errorf("got %+v, want %s", got, want)
	}
	if got := add(nil); got != nil {
		t.Errorf("an hour later: %+v", got)
	}
}

// A Lease enqueues the policies that it reports.
func TestCountedPolicies(t *testing.T) {
	var counter replica.Counter
	violate(&counter, "x", 1)
	r := &Reconciler{}
	if got := r.countedPolicies(t.Context(), newLease(t, "a", &counter, 0)); len(got) != 1 || got[0].Name != "team" {
		t.Errorf("%v", got)
	}
	if got := r.countedPolicies(t.Context(), client.Object(&coordinationv1.Lease{})); len(got) > 0 {
		t.Errorf("without a report: %v", got)
	}
}
