// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/replica"
)

const (
	// maxLeases is the number of Leases that lifecycle adds up. Each start of a replica that counts something adds one.
	maxLeases = 256
	// maxProjects is the number of projects that a status lists.
	maxProjects = 20
	// maxNamed is the number of projects that a condition names; it counts the others.
	maxNamed = 5
)

// countedPolicies returns the policies that a Lease reports.
func (r *Reconciler) countedPolicies(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	counts, err := replica.Decode(object.(*coordinationv1.Lease))
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Ignored report of a replica", "error", err.Error())
	}
	for i := range counts {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: counts[i].Policy}})
	}
	return requests
}

// decodedReport is a report of a version of a Lease.
type decodedReport struct {
	resourceVersion string
	counts          []replica.Counts
}

// readReports returns what the replicas counted. It deletes the Leases that count for nothing any more, and the oldest of too many.
func (r *Reconciler) readReports(ctx context.Context, now time.Time) (reports [][]replica.Counts, err error) {
	var leases coordinationv1.LeaseList
	if err := r.Client.List(ctx, &leases, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	slices.SortFunc(leases.Items, func(a, b coordinationv1.Lease) int { // the latest first
		return ptr.Deref(b.Spec.RenewTime, metav1.MicroTime{}).Compare(ptr.Deref(a.Spec.RenewTime, metav1.MicroTime{}).Time)
	})
	decoded := map[string]decodedReport{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if i >= maxLeases || replica.IsOutdated(lease, now) {
			if err := r.Client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("delete the lease of a replica: %w", err)
			}
			continue
		}
		report := r.decoded[lease.Name]
		if report.resourceVersion != lease.ResourceVersion {
			report.resourceVersion = lease.ResourceVersion
			report.counts, _ = replica.Decode(lease) // countedPolicies logged the error
		}
		decoded[lease.Name] = report
		reports = append(reports, report.counts)
	}
	r.decoded = decoded
	return reports, nil
}

// addCounts adds what the replicas counted to a status. required: what the policy matches was refused when it took too long.
func addCounts(status *v1alpha1.PolicyStatus, total replica.Total, required bool, now metav1.Time) {
	status.Violations, status.ViolationsByProject, status.Examples = 0, nil, total.Examples
	for _, project := range byCount(total.Violations) {
		status.Violations += total.Violations[project]
		if project != "" && len(status.ViolationsByProject) < maxProjects {
			status.ViolationsByProject = append(status.ViolationsByProject,
				v1alpha1.ProjectViolations{Project: project, Violations: total.Violations[project]})
		}
	}
	if len(total.TimedOut) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionTimedOut)
		return
	}
	timedOut := timedOutCondition(total.TimedOut, required)
	timedOut.ObservedGeneration, timedOut.LastTransitionTime = status.ObservedGeneration, now
	meta.SetStatusCondition(&status.Conditions, timedOut)
}

// byCount returns the projects with the highest counts first.
func byCount(counts map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// timedOutCondition says how often the policy took too long, and for which projects.
func timedOutCondition(timedOut map[string]int64, required bool) metav1.Condition {
	var sum int64
	var names []string
	for _, project := range byCount(timedOut) {
		sum += timedOut[project]
		if project != "" {
			names = append(names, fmt.Sprintf("%s %d", project, timedOut[project]))
		}
	}
	effect := "the policy had no effect on these objects"
	if required {
		effect = "these objects were refused"
	}
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionTimedOut, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTimedOut,
		Message: fmt.Sprintf("%d evaluations of the last hour took longer than a policy may; %s. By project: %s", sum, effect, text),
	}
}
