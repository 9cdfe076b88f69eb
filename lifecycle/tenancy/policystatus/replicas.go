// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

// replicaInterval is the time between two readings of the replicas' reports, in machine time.
const replicaInterval = 2 * time.Second

// replicas are the latest reports of the webhook's replicas.
type replicas struct {
	observer replica.Observer

	mu sync.Mutex
	// read: they were read at least once since the start.
	read   bool
	states []replica.State
	// views are what the status of each policy was last written from.
	views map[string]replicaView
}

// get returns the reports, and false before they were read for the first time.
func (r *replicas) get() ([]replica.State, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states, r.read
}

// watchReplicas enqueues the policies of which a replica reports something else, or no longer reports.
func (r *Reconciler) watchReplicas(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	logger := ctrl.LoggerFrom(ctx).WithName("replicas")
	r.replicas.observer.Invalid = func(name string, err error) {
		logger.Info("Ignored report of a replica", "lease", name, "error", err.Error())
	}
	go func() {
		ticker := time.NewTicker(replicaInterval) //nolint:forbidigo // machine time: how often to read
		defer ticker.Stop()
		for {
			changed, err := r.readReplicas(ctx)
			if err != nil && ctx.Err() == nil {
				logger.Error(err, "Failed to read reports of replicas, retrying", "interval", replicaInterval)
			}
			for _, name := range changed {
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return nil
}

// readReplicas reads the reports, deletes those that are of no more use, and returns the policies whose status changes.
func (r *Reconciler) readReplicas(ctx context.Context) (changed []string, err error) {
	set, err := r.Policies.Current()
	if err != nil {
		return nil, nil //nolint:nilerr // the policies are not loaded yet
	}
	var leases coordinationv1.LeaseList
	if err := r.Client.List(ctx, &leases, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	now := policytime.MachineNow()
	states := r.replicas.observer.Observe(leases.Items, now)
	versions := set.Versions()
	digest, views := replica.Digest(versions), make(map[string]replicaView, len(versions))
	for _, version := range versions {
		views[version.Policy] = newReplicaView(version, states, now, digest)
	}
	r.replicas.mu.Lock()
	for name, view := range views {
		if before, ok := r.replicas.views[name]; !ok || !reflect.DeepEqual(before, view) {
			changed = append(changed, name)
		}
	}
	r.replicas.states, r.replicas.views, r.replicas.read = states, views, true
	r.replicas.mu.Unlock()
	return changed, r.deleteExpired(ctx, set, states, now)
}

// deleteExpired deletes the Leases of replicas that ended, once the policies' status includes what they counted.
func (r *Reconciler) deleteExpired(ctx context.Context, set *engine.Set, states []replica.State, now time.Time) error {
	for _, name := range r.replicas.observer.Expired(now) {
		at := slices.IndexFunc(states, func(s replica.State) bool { return s.Lease == name })
		if at >= 0 {
			included, err := r.isIncluded(ctx, set, &states[at])
			if err != nil {
				return err
			}
			if !included {
				continue
			}
		}
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = v1alpha1.SystemNamespace, name
		if err := r.Client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the lease of a replica that ended: %w", err)
		}
		ctrl.LoggerFrom(ctx).Info("Deleted lease of a replica that ended", "lease", name)
	}
	return nil
}

// isIncluded reports whether the status of all policies includes what a replica counted.
func (r *Reconciler) isIncluded(ctx context.Context, set *engine.Set, state *replica.State) (bool, error) {
	for i := range state.Report.Violations {
		counted := engine.Version(state.Report.Violations[i].Version)
		if version, ok := set.Version(counted.Policy); !ok || version != counted {
			continue // the policy has changed since
		}
		var policy v1alpha1.Policy
		if err := r.Client.Get(ctx, types.NamespacedName{Name: counted.Policy}, &policy); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return false, err
		}
		if policy.Status.EndedReplicas == nil || !slices.Contains(policy.Status.EndedReplicas.Replicas, state.Lease) {
			return false, nil
		}
	}
	return true, nil
}
