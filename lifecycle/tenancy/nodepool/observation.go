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

// Observation is what there is to say of one pool.
type Observation struct {
	// Nodes is the number of nodes that belong to the pool.
	Nodes int32
	// Inventory is their GPUs taken together.
	Inventory inventory.Summary
	// SharedNodes are the nodes that other pools select too, each with those
	// pools' names; sorted.
	SharedNodes []string
	// UnknownGPUs says of each node whose GPUs cannot be told, or not all of it, why
	// not; sorted.
	UnknownGPUs []string
}

// Observe looks at all nodes for one pool. The GPUNodes are by node name.
func Observe(pool *v1alpha1.NodePool, pools []v1alpha1.NodePool, nodes []corev1.Node, observed map[string]*v1alpha1.GPUNode) Observation {
	var seen Observation
	var machines []inventory.Summary
	for i := range nodes {
		node := &nodes[i]
		if !inventory.SelectsNode(pool, node) {
			continue
		}
		if names := inventory.PoolsForNode(node, pools); len(names) > 1 {
			others := slices.DeleteFunc(names, func(name string) bool { return name == pool.Name })
			seen.SharedNodes = append(seen.SharedNodes, fmt.Sprintf("%s (also in %s)", node.Name, strings.Join(others, ", ")))
			continue
		}
		seen.Nodes++
		machine, err := inventory.SummarizeNode(node, observed[node.Name])
		if err != nil {
			seen.UnknownGPUs = append(seen.UnknownGPUs, err.Error())
			continue
		}
		machines = append(machines, machine)
	}
	seen.Inventory = inventory.Combine(machines)
	restrictProfilesToLayout(pool, seen.Inventory.GPUModels)
	seen.UnknownGPUs = append(seen.UnknownGPUs, seen.Inventory.Warnings...)
	slices.Sort(seen.SharedNodes)
	slices.Sort(seen.UnknownGPUs)
	return seen
}

// restrictProfilesToLayout leaves a board the profiles that there will be instances of: a pool that is
// cut as its layout says never has others, and a pod that was given one would wait for
// ever.
func restrictProfilesToLayout(pool *v1alpha1.NodePool, boards []v1alpha1.GPUModel) {
	if pool.Spec.MIG == nil || pool.Spec.MIG.Planning != v1alpha1.MIGPlanningStatic {
		return
	}
	for i := range boards {
		boards[i].MIGProfiles = slices.DeleteFunc(slices.Clone(boards[i].MIGProfiles), func(profile v1alpha1.MIGProfile) bool {
			return !slices.ContainsFunc(pool.Spec.MIG.Layout, func(layout v1alpha1.MIGLayout) bool {
				return layout.MIGDevices[profile] > 0
			})
		})
	}
}

// schedulerPolicyPrefix is what the names of policies begin with that write for a scheduler.
const schedulerPolicyPrefix = "schedulers."

// checkerTTL is for how long what was read of the cluster is not read again, in
// machine time: pools require the same, and look when any of a thousand nodes
// changes.
const checkerTTL = 5 * time.Second

// SchedulerSupport is what the policies in force do for a pool, and whether they can.
type SchedulerSupport struct {
	// Supported tells that a policy writes for the pool's scheduler. Others are those
	// for which one does.
	Supported           bool
	SupportedSchedulers []string
	// RequirementCount is how many things policies require of the cluster or want to know
	// of it.
	RequirementCount int
	// Findings are what was found of that.
	Findings requirements.Findings
	// Failures are the policies of which it is not known what they require.
	Failures []engine.Failure
	// CheckErr is why the cluster could not be looked at; nil where it was.
	CheckErr error
}

// observeScheduler asks the policies in force, and looks at the cluster.
func (r *Reconciler) observeScheduler(ctx context.Context, pool *v1alpha1.NodePool) (SchedulerSupport, error) {
	policies, err := r.Policies.Current()
	if err != nil {
		return SchedulerSupport{}, fmt.Errorf("node pool %s: %w", pool.Name, err)
	}
	s := SchedulerSupport{Supported: policies.Provides(schedulerPolicyPrefix + string(pool.Spec.Scheduler)), SupportedSchedulers: supportedSchedulers(policies)}
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		return SchedulerSupport{}, fmt.Errorf("listing departments: %w", err)
	}
	told := input.NewNodePool(pool, departments.Items, nil)
	// That follows from the answer, which would turn back and forth.
	told.Unsupported = ""
	requires, failures, err := apply.RenderRequirements(ctx, policies, apply.NodePoolSubject(pool, told))
	if err != nil {
		return SchedulerSupport{}, err
	}
	s.RequirementCount, s.Failures = len(requires), failures
	s.Findings, s.CheckErr = r.currentChecker().Check(ctx, requires, pool.Status.Settings)
	return s, nil
}

// supportedSchedulers are the schedulers for which a policy writes, sorted.
func supportedSchedulers(policies *engine.Set) []string {
	var names []string
	for _, name := range policies.Names() {
		if scheduler, ok := strings.CutPrefix(name, schedulerPolicyPrefix); ok && policies.Provides(name) {
			names = append(names, scheduler)
		}
	}
	return names
}

// currentChecker is the present one; one worker at a time asks for it.
func (r *Reconciler) currentChecker() *requirements.Checker {
	if now := policytime.MachineNow(); r.checker == nil || now.Sub(r.checkerCreated) > checkerTTL {
		r.checker, r.checkerCreated = requirements.NewChecker(r.Live, r.Client.RESTMapper()), now
	}
	return r.checker
}
