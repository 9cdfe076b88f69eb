// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Keeper keeps an engine in step with the Policy objects. It runs in every
// replica, whether it leads or not. Its fields are set before it starts.
type Keeper struct {
	// Engine is what is kept. Nobody else updates it.
	Engine *engine.Engine
	// BuiltIn are the policies that are always in force.
	BuiltIn []engine.Source
	// Logger tells of policies that do not compile.
	Logger logr.Logger

	cache cache.Cache

	// set are the parameters of mirrors that are in force; only updates use it.
	set map[string]parameterSet

	// calling is held while listeners are called, so that none hears of an older
	// update after a newer one.
	calling sync.Mutex
	// mu guards what follows.
	mu      sync.Mutex
	reports []engine.Report
	// notReady is why the engine must not be asked yet; nil where it may be.
	notReady error
	// standIns are the policies that stand in the place of built-in ones, by their
	// own names.
	standIns  map[string]StandIn
	listeners []func([]engine.Report)
	// logged is what was said of each policy last, so that it is said once.
	logged map[string]string
}

// SetupWithManager makes the manager run k, and have the Policy objects in its
// cache from the start.
func (k *Keeper) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	k.cache = mgr.GetCache()
	// Asked for now, so that the cache is not filled without them.
	if _, err := k.cache.GetInformer(ctx, &v1alpha1.Policy{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	return mgr.Add(k)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start keeps the engine in step until ctx ends. It implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	informer, err := k.cache.GetInformer(ctx, &v1alpha1.Policy{})
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	// One change is remembered while an update is under way: it sees all of them.
	changed := make(chan struct{}, 1)
	handler, err := informer.AddEventHandler(onChange(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}))
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handler) }() // it fails only where it is gone already
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil
	}
	// What the first listing told of, the first update sees.
	select {
	case <-changed:
	default:
	}
	for {
		if err := k.update(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// onChange tells of every event that may change what is in force: not of a new
// status, which is written because of the last update.
func onChange(tell func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() },
		UpdateFunc: func(before, after any) {
			was, ok := before.(*v1alpha1.Policy)
			is, also := after.(*v1alpha1.Policy)
			if ok && also && was.UID == is.UID && was.Generation == is.Generation &&
				was.Labels[v1alpha1.LabelBuiltIn] == is.Labels[v1alpha1.LabelBuiltIn] {
				return
			}
			tell()
		},
		DeleteFunc: func(any) { tell() },
	}
}

// update puts in force what the cache has now.
func (k *Keeper) update(ctx context.Context) error {
	var objects v1alpha1.PolicyList
	if err := k.cache.List(ctx, &objects); err != nil {
		if ctx.Err() != nil {
			return nil // the program ends, and so does this
		}
		return fmt.Errorf("listing policies: %w", err)
	}
	told := tell(k.BuiltIn, objects.Items, k.set)
	k.set = told.set
	reports := told.reports(k.Engine.Update(told.sources))
	k.calling.Lock()
	defer k.calling.Unlock()
	k.mu.Lock()
	k.reports, k.notReady = reports, missing(k.BuiltIn, reports)
	k.standIns = told.standIns(reports, k.standIns)
	k.log()
	listeners := slices.Clone(k.listeners)
	k.mu.Unlock()
	for _, listener := range listeners {
		listener(reports)
	}
	return nil
}
