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

// Subscription is what a department has of a thing, and has promised of it.
type Subscription struct {
	QuotaResource

	// Quota is the department's own guarantee of GPUs, or its quota of CPU or memory.
	Quota resource.Quantity
	// Subscribed is the sum of what its projects were.
	Subscribed resource.Quantity
	// Shares are theirs, the largest first; none of nothing.
	Shares []ProjectShare
	// WithoutQuota are the projects without a quota of it, by name; only of CPU and
	// memory, of which they can then take all there is.
	WithoutQuota []string
}

// ProjectShare is a project's part of a promise.
type ProjectShare struct {
	// Project is the project's name.
	Project string
	// Quantity is how much it was promised, more than 0.
	Quantity resource.Quantity
}

// Subscriptions is what the department has and has promised: of its node pools in their
// order, then of CPU and memory where it has a quota of them. Projects of other
// departments are left out, and so is the one named without, if any.
func Subscriptions(department *v1alpha1.Department, projects []v1alpha1.Project, without string) []Subscription {
	spec := &department.Spec
	things := make([]QuotaResource, 0, len(spec.NodePools)+2)
	for i := range spec.NodePools {
		things = append(things, NodePoolGPUs(spec.NodePools[i].Name))
	}
	things = append(things, ResourceCPU, ResourceMemory)
	var promises []Subscription
	for _, thing := range things {
		has := thing.QuotaOf(spec.NodePools, spec.Resources)
		if has == nil {
			continue
		}
		promise := Subscription{QuotaResource: thing, Quota: *has}
		for i := range projects {
			if p := &projects[i]; p.Spec.Department == department.Name && p.Name != without {
				promise.addProject(p)
			}
		}
		slices.SortFunc(promise.Shares, compareShares)
		slices.Sort(promise.WithoutQuota)
		promises = append(promises, promise)
	}
	return promises
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

// IsOversubscribed tells whether more was promised than the department has.
func (p *Subscription) IsOversubscribed() bool { return p.Subscribed.Cmp(p.Quota) > 0 }

// Remaining is what can still be promised; never less than 0.
func (p *Subscription) Remaining() resource.Quantity {
	left := p.Quota.DeepCopy()
	left.Sub(p.Subscribed)
	if left.Sign() < 0 {
		return resource.Quantity{Format: p.Quota.Format}
	}
	return left
}

// maxListed is how many projects a sentence names before it only counts.
const maxListed = 3

// DescribeShares says who has most of it: "course 2, thesis 500m and 4 more"; empty
// where nobody has any.
func (p *Subscription) DescribeShares() string {
	var words []string
	for i := range p.Shares {
		words = append(words, p.Shares[i].Project+" "+p.Shares[i].Quantity.String())
	}
	return JoinLimited(words)
}

// JoinLimited is a list in words that names a few and counts the others: "a, b, c and 4 more".
func JoinLimited(words []string) string {
	shown := strings.Join(words[:min(maxListed, len(words))], ", ")
	if more := len(words) - maxListed; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// DescribeOversubscription says of every thing of which more was promised than there is how much,
// and to whom; empty where there is none.
func DescribeOversubscription(promises []Subscription) string {
	var words []string
	for i := range promises {
		p := &promises[i]
		if p.IsOversubscribed() {
			words = append(words, fmt.Sprintf("%s: it has %s and has promised %s (%s)", p.QuotaResource, p.Quota.String(), p.Subscribed.String(), p.DescribeShares()))
		}
	}
	return strings.Join(words, "; ")
}

// QuotaResource is what can be promised: the GPUs of a node pool, CPU or memory.
type QuotaResource struct {
	// NodePool is the node pool whose GPUs it is; empty for CPU and memory.
	NodePool string
	// Resource is cpu or memory; empty for GPUs.
	Resource corev1.ResourceName
}

// NodePoolGPUs are the GPUs of the node pool.
func NodePoolGPUs(pool string) QuotaResource { return QuotaResource{NodePool: pool} }

// The things that are not a node pool's.
var (
	ResourceCPU    = QuotaResource{Resource: corev1.ResourceCPU}
	ResourceMemory = QuotaResource{Resource: corev1.ResourceMemory}
)

// String names it: "GPUs of node pool dgx", "CPU", "memory".
func (t QuotaResource) String() string {
	switch t.Resource {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourceMemory:
		return "memory"
	default:
		return "GPUs of node pool " + t.NodePool
	}
}

// FormatAmount is so much of it, in words: "2 GPUs", "64 cores", "512Gi of memory".
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

// QuotaOf is what somebody with these quotas states for the thing: the guarantee of
// GPUs, the quota of CPU or memory; nil where nothing is stated.
func (t QuotaResource) QuotaOf(pools []v1alpha1.PoolQuota, resources v1alpha1.ResourceQuota) *resource.Quantity {
	switch t.Resource {
	case corev1.ResourceCPU:
		return resources.CPU
	case corev1.ResourceMemory:
		return resources.Memory
	}
	for i := range pools {
		if pools[i].Name == t.NodePool {
			return &pools[i].GPU.Guaranteed
		}
	}
	return nil
}
