// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// Subscription compares a department's quota of one resource with the quotas of its projects: their
// guarantees of GPUs, or their limits in a node pool that counts each project alone.
type Subscription struct {
	QuotaResource

	// Quota is the department's guarantee or limit of GPUs, or its quota of CPU or memory.
	Quota resource.Quantity
	// Subscribed is the sum of its projects' quotas.
	Subscribed resource.Quantity
	// Shares are the projects' quotas above 0, the largest first.
	Shares []ProjectShare
	// WithoutQuota are the projects without a quota of CPU or memory, by name. They can use the
	// department's whole quota.
	WithoutQuota []string
}

// ProjectShare is the quota of one project.
type ProjectShare struct {
	// Project is the project's name.
	Project string
	// Quantity is the quota, more than 0.
	Quantity resource.Quantity
}

// Subscriptions returns the subscriptions of a department: its node pools in their order, with their
// limits if the pool, which pools contains, counts each project alone; then CPU and memory if it has
// a quota of them. It ignores projects of other departments, and the project whose name is without.
func Subscriptions(
	department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool, without string,
) []Subscription {
	spec := &department.Spec
	resources := make([]QuotaResource, 0, 2*len(spec.NodePools)+2)
	for i := range spec.NodePools {
		name := spec.NodePools[i].Name
		resources = append(resources, NodePoolGPUs(name))
		if slices.ContainsFunc(pools, func(p v1alpha1.NodePool) bool { return p.Name == name && p.Spec.Scheduler.CountsProjectsAlone() }) {
			resources = append(resources, QuotaResource{NodePool: name, Limit: true})
		}
	}
	resources = append(resources, ResourceCPU, ResourceMemory)
	var subscriptions []Subscription
	for _, quotaResource := range resources {
		quota := quotaResource.QuotaOf(spec.NodePools, spec.Resources)
		if quota == nil {
			continue
		}
		subscription := Subscription{QuotaResource: quotaResource, Quota: *quota}
		for i := range projects {
			if p := &projects[i]; p.Spec.Department == department.Name && p.Name != without {
				subscription.addProject(p)
			}
		}
		slices.SortFunc(subscription.Shares, compareShares)
		slices.Sort(subscription.WithoutQuota)
		subscriptions = append(subscriptions, subscription)
	}
	return subscriptions
}

func (p *Subscription) addProject(project *v1alpha1.Project) {
	share := p.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
	switch {
	case share == nil && p.NodePool == "":
		p.WithoutQuota = append(p.WithoutQuota, project.Name)
	case share != nil && share.Sign() > 0:
		p.Subscribed.Add(*share)
		p.Shares = append(p.Shares, ProjectShare{Project: project.Name, Quantity: *share})
	}
}

func compareShares(a, b ProjectShare) int {
	if c := b.Quantity.Cmp(a.Quantity); c != 0 {
		return c
	}
	return strings.Compare(a.Project, b.Project)
}

// IsOversubscribed reports whether the projects' quotas exceed the department's.
func (p *Subscription) IsOversubscribed() bool { return p.Subscribed.Cmp(p.Quota) > 0 }

// Remaining returns the quota that is not subscribed, at least 0.
func (p *Subscription) Remaining() resource.Quantity {
	remaining := p.Quota.DeepCopy()
	remaining.Sub(p.Subscribed)
	if remaining.Sign() < 0 {
		return resource.Quantity{Format: p.Quota.Format}
	}
	return remaining
}

// maxListed is the number of projects that a message names. The message only counts the others.
const maxListed = 3

// DescribeShares lists the largest shares, such as "course 2, thesis 500m and 4 more".
func (p *Subscription) DescribeShares() string {
	var words []string
	for i := range p.Shares {
		words = append(words, p.Shares[i].Project+" "+p.Shares[i].Quantity.String())
	}
	return JoinLimited(words)
}

// JoinLimited joins the first words and counts the others: "a, b, c and 4 more".
func JoinLimited(words []string) string {
	shown := strings.Join(words[:min(maxListed, len(words))], ", ")
	if more := len(words) - maxListed; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// DescribeOversubscription describes every oversubscribed resource, with the amounts and the
// projects. It returns "" if there is none.
func DescribeOversubscription(subscriptions []Subscription) string {
	var words []string
	for i := range subscriptions {
		p := &subscriptions[i]
		if p.IsOversubscribed() {
			words = append(words, fmt.Sprintf("%s: it has %s and has promised %s (%s)",
				p.QuotaResource, p.Quota.String(), p.Subscribed.String(), p.DescribeShares()))
		}
	}
	return strings.Join(words, "; ")
}

// QuotaResource is a resource with a quota: the GPUs of a node pool, CPU or memory.
type QuotaResource struct {
	// NodePool is the node pool of the GPUs. It is empty for CPU and memory.
	NodePool string
	// Resource is cpu or memory. It is empty for GPUs.
	Resource corev1.ResourceName
	// Limit is true for the limits of GPUs, false for the guarantees.
	Limit bool
}

// NodePoolGPUs returns the GPUs of a node pool.
func NodePoolGPUs(pool string) QuotaResource { return QuotaResource{NodePool: pool} }

// The resources without a node pool.
var (
	ResourceCPU    = QuotaResource{Resource: corev1.ResourceCPU}
	ResourceMemory = QuotaResource{Resource: corev1.ResourceMemory}
)

// String returns "GPUs of node pool dgx", "limits of node pool dgx", "CPU" or "memory".
func (t QuotaResource) String() string {
	switch t.Resource {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourceMemory:
		return "memory"
	}
	if t.Limit {
		return "limits of node pool " + t.NodePool
	}
	return "GPUs of node pool " + t.NodePool
}

// FormatAmount formats an amount: "2 GPUs", "64 cores", "512Gi of memory".
func (t QuotaResource) FormatAmount(of resource.Quantity) string {
	number := of.String()
	unit := " GPUs"
	switch t.Resource {
	case corev1.ResourceCPU:
		unit = " cores"
	case corev1.ResourceMemory:
		return number + " of memory"
	}
	if number == "1" {
		unit = unit[:len(unit)-1]
	}
	return number + unit
}

// QuotaOf returns the quota of the resource: the guarantee or the limit of GPUs, or the quota of CPU
// or memory. It returns nil if there is none.
func (t QuotaResource) QuotaOf(pools []v1alpha1.PoolQuota, resources v1alpha1.ResourceQuota) *resource.Quantity {
	switch t.Resource {
	case corev1.ResourceCPU:
		return resources.CPU
	case corev1.ResourceMemory:
		return resources.Memory
	}
	for i := range pools {
		if pools[i].Name == t.NodePool && t.Limit {
			limit := pools[i].GPU.MaxInUse()
			return &limit
		}
		if pools[i].Name == t.NodePool {
			return &pools[i].GPU.Guaranteed
		}
	}
	return nil
}
