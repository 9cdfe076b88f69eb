// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/engine"
)

// The limits of the lists in the status of a policy.
const (
	maxProjects = 20
	maxExamples = 5
)

// writeFigures writes what the audit found to the status of each policy whose figures changed.
func (a *Auditor) writeFigures(ctx context.Context, report *audit.Report, set *engine.Set, now metav1.Time) error {
	var policies v1alpha1.PolicyList
	if err := a.Client.List(ctx, &policies); err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	examples := examplesByPolicy(report.Entries)
	for i := range policies.Items {
		policy := &policies.Items[i]
		version, inForce := set.Version(policy.Name)
		var desired *v1alpha1.PolicyAudit
		if inForce {
			desired = newPolicyAudit(version.Generation, report.Policies[policy.Name], examples[policy.Name], now)
		}
		if isEqualAudit(policy.Status.Audit, desired) {
			continue
		}
		if err := a.writePolicyAudit(ctx, policy, desired); err != nil {
			return fmt.Errorf("write the audit of policy %s: %w", policy.Name, err)
		}
	}
	return nil
}

// writePolicyAudit writes the figures of a policy. Another controller writes the other fields of the status.
func (a *Auditor) writePolicyAudit(ctx context.Context, policy *v1alpha1.Policy, desired *v1alpha1.PolicyAudit) error {
	first := true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first {
			if err := a.Live.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
				return err
			}
		}
		first = false
		policy.Status.Audit = desired
		return a.Client.Status().Update(ctx, policy)
	})
	return client.IgnoreNotFound(err)
}

// isEqualAudit reports whether two audits found the same.
func isEqualAudit(before, after *v1alpha1.PolicyAudit) bool {
	if before == nil || after == nil {
		return before == after
	}
	unchanged := *after
	unchanged.ChangedAt = before.ChangedAt
	return equality.Semantic.DeepEqual(*before, unchanged)
}

// newPolicyAudit returns the figures of a policy; counts is nil if it found nothing.
func newPolicyAudit(generation int64, counts *audit.PolicyCounts, examples []v1alpha1.AuditExample, now metav1.Time) *v1alpha1.PolicyAudit {
	figures := &v1alpha1.PolicyAudit{Generation: generation, ChangedAt: now, Examples: examples}
	if counts == nil {
		return figures
	}
	figures.Violations, figures.Failed = int64(counts.Violations()), int64(counts.Failed)
	for project, violations := range counts.ByProject {
		of := v1alpha1.ProjectViolations{Project: project, Violations: int64(violations)}
		figures.ViolationsByProject = append(figures.ViolationsByProject, of)
	}
	slices.SortFunc(figures.ViolationsByProject, func(a, b v1alpha1.ProjectViolations) int {
		return cmp.Or(cmp.Compare(b.Violations, a.Violations), cmp.Compare(a.Project, b.Project))
	})
	figures.ViolationsByProject = figures.ViolationsByProject[:min(len(figures.ViolationsByProject), maxProjects)]
	return figures
}

// examplesByPolicy returns examples of violations: first one of each project, then others, in the order of the entries.
func examplesByPolicy(entries []audit.Entry) map[string][]v1alpha1.AuditExample {
	examples := make(map[string][]v1alpha1.AuditExample)
	taken := make(map[int]bool)
	for _, firstOfProject := range []bool{true, false} {
		for i := range entries {
			entry := &entries[i]
			known := examples[entry.Policy]
			if !entry.Result.IsViolation() || taken[i] || len(known) >= maxExamples {
				continue
			}
			ofProject := func(e v1alpha1.AuditExample) bool { return e.Project == entry.Project }
			if firstOfProject && slices.ContainsFunc(known, ofProject) {
				continue
			}
			taken[i] = true
			examples[entry.Policy] = append(known, v1alpha1.AuditExample{
				Project: entry.Project, Kind: entry.Kind, Namespace: entry.Namespace, Name: entry.Name,
				Result: string(entry.Result), Pods: int64(entry.Pods), Message: entry.Message,
			})
		}
	}
	return examples
}

// recordFieldManager owns the record of the last audit.
const recordFieldManager = v1alpha1.FieldManagerLifecycle + "-audit"

// writeRecord writes the record of a complete audit.
func (a *Auditor) writeRecord(ctx context.Context, r *v1alpha1.AuditRecord) error {
	record := ac.AuditRecord().WithTime(r.Time).WithDurationSeconds(r.DurationSeconds).WithPolicies(r.Policies).
		WithEvaluated(r.Evaluated).WithUnevaluated(r.Unevaluated).WithViolations(r.Violations).WithReports(r.Reports)
	parameters := ac.AdmissionParameters(v1alpha1.AdmissionParametersName).WithStatus(ac.AdmissionParametersStatus().WithAudit(record))
	err := a.Client.Status().Apply(ctx, parameters, client.FieldOwner(recordFieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the record of the audit: %w", err)
	}
	return nil
}
