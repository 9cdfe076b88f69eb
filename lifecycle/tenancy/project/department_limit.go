// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// granted are the projects whose quota this process rendered or will render, before their status says
// so. The zero value is empty.
type granted struct {
	mu    sync.Mutex
	names map[string]bool
}

// checkDepartmentLimit returns why the first quota of a project must not be rendered, or nil. Admission
// refuses limits above the department's, but not those of two projects that are created at the same
// time through two replicas of the webhook. A project that has a quota keeps it.
func (r *Reconciler) checkDepartmentLimit(
	ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department,
) (*problem, error) {
	if department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow || hasQuota(project) {
		return nil, nil
	}
	r.granted.mu.Lock()
	defer r.granted.mu.Unlock()
	if r.granted.names[project.Name] {
		return nil, nil
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return nil, fmt.Errorf("list projects of department %s: %w", department.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list node pools: %w", err)
	}
	var before []v1alpha1.Project
	for i := range projects.Items {
		if other := &projects.Items[i]; hasQuota(other) || r.granted.names[other.Name] || isOlder(other, project) {
			before = append(before, *other)
		}
	}
	if excess := FindDepartmentExcess(project, department, before, pools.Items); excess != "" {
		return &problem{v1alpha1.ReasonDepartmentLimitExceeded, excess}, nil
	}
	if r.granted.names == nil {
		r.granted.names = map[string]bool{}
	}
	r.granted.names[project.Name] = true
	return nil, nil
}

// forget forgets a deleted project.
func (g *granted) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.names, name)
}

// hasQuota reports whether the project's quota was rendered before.
func hasQuota(project *v1alpha1.Project) bool {
	return len(project.Status.NodePools) > 0 || meta.IsStatusConditionTrue(project.Status.Conditions, v1alpha1.ConditionQuotaApplied)
}

// isOlder reports whether a project was created before another. Creation times are whole seconds.
func isOlder(a, b *v1alpha1.Project) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) < 0
}

// FindDepartmentExcess describes the limits of a project that do not fit into its department beside
// those of the projects before it, in node pools that count each project alone. It returns "" if all
// fit.
func FindDepartmentExcess(
	project *v1alpha1.Project, department *v1alpha1.Department, before []v1alpha1.Project, pools []v1alpha1.NodePool,
) string {
	var texts []string
	for _, subscription := range tenancy.Subscriptions(department, before, pools, project.Name) {
		requested := subscription.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
		if left := subscription.Remaining(); subscription.Limit && requested != nil && requested.Cmp(left) > 0 {
			texts = append(texts, fmt.Sprintf("department %s is limited to %s in node pool %s, where each project is counted alone, and has "+
				"promised %s to other projects (%s): the project's limit of %s does not fit", department.Name,
				subscription.FormatAmount(subscription.Quota), subscription.NodePool, subscription.Subscribed.String(),
				subscription.DescribeShares(), requested.String()))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, "; ") + ". The project has no quota; lower its limit or another project's, or ask a system " +
		"administrator to raise the department's or to set its spec.oversubscription to Allow"
}
