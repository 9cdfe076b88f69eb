// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/lifecycle/requirements"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/facts"
)

// schedulers is what the names of policies begin with that write for a scheduler.
const schedulers = "schedulers."

// sameLook is for how long what was read of the cluster is not read again, in
// machine time: pools require the same, and look when any of a thousand nodes
// changes.
const sameLook = 5 * time.Second

// Service is what the policies in force do for a pool, and whether they can.
type Service struct {
	// Supported tells that a policy writes for the pool's scheduler. Others are those
	// for which one does.
	Supported bool
	Others    []string
	// Required is how many things policies require of the cluster or want to know
	// of it.
	Required int
	// Findings are what was found of that.
	Findings requirements.Findings
	// Failures are the policies of which it is not known what they require.
	Failures []engine.Failure
	// Unseen is why the cluster could not be looked at; nil where it was.
	Unseen error
}

// service asks the policies in force, and looks at the cluster.
func (r *Reconciler) service(ctx context.Context, pool *v1alpha1.NodePool) (Service, error) {
	policies, err := r.Policies.Current()
	if err != nil {
		return Service{}, fmt.Errorf("node pool %s: %w", pool.Name, err)
	}
	s := Service{Supported: policies.Serves(schedulers + string(pool.Spec.Scheduler)), Others: served(policies)}
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		return Service{}, fmt.Errorf("listing departments: %w", err)
	}
	told := facts.OfNodePool(pool, departments.Items, nil)
	// That follows from the answer, which would turn back and forth.
	told.Unsupported = ""
	requires, failures, err := render.Requires(ctx, policies, render.OfNodePool(pool, told))
	if err != nil {
		return Service{}, err
	}
	s.Required, s.Failures = len(requires), failures
	s.Findings, s.Unseen = r.look().Check(ctx, requires, pool.Status.Settings)
	return s, nil
}

// served are the schedulers for which a policy writes, sorted.
func served(policies *engine.Set) []string {
	var names []string
	for _, name := range policies.Names() {
		if scheduler, ok := strings.CutPrefix(name, schedulers); ok && policies.Serves(name) {
			names = append(names, scheduler)
		}
	}
	return names
}

// look is the present one; one worker at a time asks for it.
func (r *Reconciler) look() *requirements.Look {
	if now := clock.MachineNow(); r.present == nil || now.Sub(r.since) > sameLook {
		r.present, r.since = requirements.NewLook(r.Live, r.Client.RESTMapper()), now
	}
	return r.present
}
