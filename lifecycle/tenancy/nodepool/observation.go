// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/requirements"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// Observation is the observed state of one pool.
type Observation struct {
	// Nodes is the number of nodes that belong to the pool.
	Nodes int32
	// Inventory has the GPUs of these nodes.
	Inventory inventory.Summary
	// SharedNodes are the nodes that other pools select, too, with the names of those
	// pools; sorted.
	SharedNodes []string
	// MixedMIGNodes are the nodes whose device plugin has migStrategy mixed; sorted.
	MixedMIGNodes []string
	// NodeKinds are the kinds of the nodes with known GPUs, and Taints the lasting taints that all nodes
	// have; sorted.
	NodeKinds []v1alpha1.NodeKind
	Taints    []corev1.Taint
	// UnlistedResources are what nodes offer, or offered lately, and no list knows; UnlistedPods are the
	// running pods of projects that have it. Both are sorted.
	UnlistedResources []v1alpha1.UnlistedResource
	UnlistedPods      []string
	// UnknownGPUs are the reasons why the GPUs of a node are not fully known; sorted.
	UnknownGPUs []string
}

// Observe returns the observed state of a pool. The GPUNodes are keyed by node name.
func Observe(pool *v1alpha1.NodePool, pools []v1alpha1.NodePool, nodes []corev1.Node, gpuNodes map[string]*v1alpha1.GPUNode) Observation {
	var observation Observation
	var summaries []inventory.Summary
	for i := range nodes {
		node := &nodes[i]
		if !inventory.SelectsNode(pool, node) {
			continue
		}
		if names := inventory.PoolsForNode(node, pools); len(names) > 1 {
			others := slices.DeleteFunc(names, func(name string) bool { return name == pool.Name })
			observation.SharedNodes = append(observation.SharedNodes, fmt.Sprintf("%s (also in %s)", node.Name, strings.Join(others, ", ")))
			continue
		}
		if taints := lastingTaints(node); observation.Nodes == 0 {
			observation.Taints = taints
		} else {
			observation.Taints = retainTaints(observation.Taints, taints)
		}
		observation.Nodes++
		if node.Labels[v1alpha1.LabelMIGStrategy] == "mixed" {
			observation.MixedMIGNodes = append(observation.MixedMIGNodes, node.Name)
		}
		summary, err := inventory.SummarizeNode(node, gpuNodes[node.Name], *pool)
		if err != nil {
			observation.UnknownGPUs = append(observation.UnknownGPUs, err.Error())
			continue
		}
		summaries = append(summaries, summary)
		observation.NodeKinds = addNodeKinds(observation.NodeKinds, node, &summary)
	}
	observation.Inventory = inventory.Combine(summaries)
	restrictProfilesToLayout(pool, observation.Inventory.GPUModels)
	observation.UnknownGPUs = append(observation.UnknownGPUs, observation.Inventory.Warnings...)
	slices.SortFunc(observation.NodeKinds, compareNodeKinds)
	slices.Sort(observation.SharedNodes)
	slices.Sort(observation.MixedMIGNodes)
	slices.Sort(observation.UnknownGPUs)
	return observation
}

// restrictProfilesToLayout removes the profiles that a static layout does not have: a pod
// with such a profile would be pending forever.
func restrictProfilesToLayout(pool *v1alpha1.NodePool, models []v1alpha1.GPUModel) {
	if pool.Spec.MIG == nil || pool.Spec.MIG.Planning != v1alpha1.MIGPlanningStatic {
		return
	}
	for i := range models {
		models[i].MIGProfiles = slices.DeleteFunc(slices.Clone(models[i].MIGProfiles), func(profile v1alpha1.MIGProfile) bool {
			return !slices.ContainsFunc(pool.Spec.MIG.Layout, func(layout v1alpha1.MIGLayout) bool {
				return layout.MIGDevices[profile] > 0
			})
		})
	}
}

// schedulerPolicyPrefix begins the names of the policies that support a scheduler.
const schedulerPolicyPrefix = "schedulers."

// checkerTTL is the time for which a checker's reads stay valid, in machine time: pools have the
// same requirements and are reconciled when any of a thousand nodes changes.
const checkerTTL = 5 * time.Second

// SchedulerSupport is the support of a pool's scheduler by the policies in force.
type SchedulerSupport struct {
	// Supported reports that a policy supports the pool's scheduler. SupportedSchedulers
	// are all that have one.
	Supported           bool
	SupportedSchedulers []string
	// RequirementCount is the number of the policies' requirements and settings.
	RequirementCount int
	// Findings are the missing requirements and the settings.
	Findings requirements.Findings
	// Failures are the policies whose requirements are unknown.
	Failures []engine.Failure
	// CheckErr is why the cluster could not be read, or nil.
	CheckErr error
}

// observeScheduler evaluates the policies in force and checks their requirements.
func (r *Reconciler) observeScheduler(ctx context.Context, pool *v1alpha1.NodePool) (SchedulerSupport, error) {
	policies, err := r.Policies.Current()
	if err != nil {
		return SchedulerSupport{}, fmt.Errorf("node pool %s: %w", pool.Name, err)
	}
	s := SchedulerSupport{
		Supported:           policies.Provides(schedulerPolicyPrefix + string(pool.Spec.Scheduler)),
		SupportedSchedulers: supportedSchedulers(policies),
	}
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		return SchedulerSupport{}, fmt.Errorf("list departments: %w", err)
	}
	document := input.NewNodePool(pool, departments.Items, nil)
	// This follows from the result, which would otherwise alternate.
	document.Unsupported = ""
	requires, failures, err := apply.RenderRequirements(ctx, policies, apply.NodePoolSubject(pool, document))
	if err != nil {
		return SchedulerSupport{}, err
	}
	s.RequirementCount, s.Failures = len(requires), failures
	s.Findings, s.CheckErr = r.currentChecker().Check(ctx, requires, pool.Status.Settings)
	return s, nil
}

// supportedSchedulers returns the schedulers that a policy supports, sorted.
func supportedSchedulers(policies *engine.Set) []string {
	var names []string
	for _, name := range policies.Names() {
		if scheduler, ok := strings.CutPrefix(name, schedulerPolicyPrefix); ok && policies.Provides(name) {
			names = append(names, scheduler)
		}
	}
	return names
}

// currentChecker returns a checker that is not too old. One worker calls it.
func (r *Reconciler) currentChecker() *requirements.Checker {
	if now := policytime.MachineNow(); r.checker == nil || now.Sub(r.checkerCreated) > checkerTTL {
		r.checker, r.checkerCreated = requirements.NewChecker(r.Live, r.Client.RESTMapper()), now
	}
	return r.checker
}
