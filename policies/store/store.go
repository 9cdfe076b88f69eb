// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps a policy engine up to date with the Policy objects of the cluster.
//
// [Store] combines the built-in policies with the Policy objects of a cache, updates the engine after each change, and
// announces the result for each policy ([engine.Report]). It also reports whether the engine is ready for evaluations.
//
// The program contains the built-in policies. Each of them has a mirror: a Policy object of the same name with the label
// sluice.dev/built-in. A built-in policy takes only spec.parameters from its mirror. If one parameter is invalid, all
// parameters keep their last valid values. The store ignores an object that has only the name or only the label of a
// mirror. The reports name invalid parameters and ignored objects.
//
// A version that has problems never replaces one that had none. The engine keeps that one in memory, and lifecycle in
// the cluster ([NewRevision]), for the engines that start later.
//
// The store also gives the engine the data that policies read: ConfigMaps, and objects of the kinds that the
// AdmissionParameters list (package policies/data).
//
// The package never writes to the cluster.
package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
)

// Store updates an engine from the Policy objects. It runs in every replica, without leader election. Its exported
// fields must be set before it starts.
type Store struct {
	// Engine is the updated engine. Only the store may update it.
	Engine *engine.Engine
	// BuiltIn are the policies that are always in force.
	BuiltIn []engine.Source
	// Compiler compiles new versions of policies outside of this process, before the engine
	// does. A version that exhausts it never reaches the engine. nil compiles nothing.
	Compiler Compiler
	// Objects watches the objects that policies read as data.objects. Without it policies see none, and the store only
	// knows which kinds the AdmissionParameters list.
	Objects *data.Watcher
	// Logger logs the problems of policies.
	Logger logr.Logger

	cache cache.Cache

	// parameters are the active parameters of the mirrors. Only update uses them.
	parameters map[string]parameterSet
	// ignoredRevisions are the resource versions of the revisions that cannot be used, to log each of them once. Only
	// update uses it.
	ignoredRevisions map[types.UID]string
	// lacksGood reports whether a policy has no good version in memory.
	lacksGood atomic.Bool
	// compiled are the versions of policies that the compiler has compiled. Only update uses
	// it.
	compiled compiledVersions
	// good are the digests of the versions that did not exhaust the compiler. Only update uses it.
	good map[[sha256.Size]byte]bool

	// listenerMu is held during the calls of listeners, so that they receive the updates in order.
	listenerMu sync.Mutex
	// mu guards the following fields.
	mu      sync.Mutex
	reports []engine.Report
	// notReady is the reason why the engine is not ready; nil if it is.
	notReady error
	// replacements are the policies that replace built-in ones, by their own names.
	replacements map[string]Replacement
	listeners    []func([]engine.Report)
	// logged is the last logged text of each policy, to log each problem once.
	logged map[string]string

	// configs are the ConfigMaps that policies read, and measuredKinds the kinds with a metric. Only updateData
	// uses them.
	configs       data.Configs
	measuredKinds map[string]bool
	// objectsLoaded: the objects of all kinds were listed once, or could not be.
	objectsLoaded atomic.Bool
	// faultMu guards faults and their listeners, and is held during their calls.
	faultMu        sync.Mutex
	faults         []data.Fault
	faultListeners []func([]data.Fault)
}

// SetupWithManager adds the store, and informers for Policy objects and their revisions, to the manager, whose cache has
// the [RevisionCacheOptions].
func (s *Store) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	s.cache = mgr.GetCache()
	// The informer starts with the cache, so that the cache is not synced without it.
	for _, object := range slices.Concat(watchedObjects(), dataObjects()) {
		if _, err := s.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch policies: %w", err)
		}
	}
	return mgr.Add(s)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Store) NeedLeaderElection() bool { return false }

// Start updates the engine until ctx ends. It implements manager.Runnable.
func (s *Store) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	dataChanged, stop, err := s.watchData(ctx)
	defer stop()
	defer cancel() // before it waits for the watches to stop
	if err != nil {
		return err
	}
	changed := newSignal()
	handler := newEventHandler(changed.send, &s.lacksGood)
	for _, object := range watchedObjects() {
		informer, err := s.cache.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch policies: %w", err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch policies: %w", err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // it fails only if the handler is removed already
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return nil
		}
	}
	// The first update covers the events of the initial list.
	select {
	case <-changed:
	default:
	}
	for {
		var retry <-chan time.Time
		switch err := s.update(ctx); {
		case errors.Is(err, errNotCompiled):
			s.Logger.Error(err, "Failed to update policies, retrying", "interval", retryInterval)
			retry = time.After(retryInterval) //nolint:forbidigo // machine time: the interval of attempts
		case err != nil:
			return err
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				waiting = false
			case <-retry:
				waiting = false
			case <-dataChanged:
				if err := s.updateData(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// retryInterval is the time between two attempts to start the compiler.
const retryInterval = 5 * time.Second

// watchedObjects are the kinds of objects that the store reads.
func watchedObjects() []client.Object {
	return []client.Object{&v1alpha1.Policy{}, &appsv1.ControllerRevision{}}
}

// newEventHandler calls notify for each event that can change the active policies, but not for a new status, which
// results from the last update. A revision changes something only while a policy lacks a good version.
func newEventHandler(notify func(), lacksGood *atomic.Bool) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) {
			if _, isPolicy := added.(*v1alpha1.Policy); isPolicy || lacksGood.Load() {
				notify()
			}
		},
		UpdateFunc: func(before, after any) {
			if _, isRevision := after.(*appsv1.ControllerRevision); isRevision {
				return // their data never changes
			}
			old, isOldPolicy := before.(*v1alpha1.Policy)
			policy, isPolicy := after.(*v1alpha1.Policy)
			if isOldPolicy && isPolicy && old.UID == policy.UID && old.Generation == policy.Generation &&
				old.Labels[v1alpha1.LabelBuiltIn] == policy.Labels[v1alpha1.LabelBuiltIn] {
				return
			}
			notify()
		},
		DeleteFunc: func(deleted any) {
			if _, isRevision := deleted.(*appsv1.ControllerRevision); !isRevision {
				notify()
			}
		},
	}
}

// update updates the engine from the cache, and calls the listeners.
func (s *Store) update(ctx context.Context) error {
	s.lacksGood.Store(true) // until the end of the update, revisions can arrive that it does not see
	var objects v1alpha1.PolicyList
	var revisions appsv1.ControllerRevisionList
	err := s.cache.List(ctx, &objects)
	if err == nil {
		err = s.cache.List(ctx, &revisions, client.UnsafeDisableDeepCopy)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // the program ends
		}
		return fmt.Errorf("list policies: %w", err)
	}
	desired := collectSources(s.BuiltIn, objects.Items, s.parameters, s.lastGoodSources(objects.Items, revisions.Items, s.lacksGoodVersion))
	if err := s.rejectExhausting(ctx, desired.sources); err != nil {
		if ctx.Err() != nil {
			return nil // the program ends
		}
		return err
	}
	s.parameters = desired.parameters
	reports := desired.reports(s.Engine.Update(desired.sources))
	s.listenerMu.Lock()
	defer s.listenerMu.Unlock()
	s.mu.Lock()
	reports = s.withMissing(reports)
	s.reports, s.notReady = reports, missingBuiltIns(s.BuiltIn, reports)
	s.replacements = desired.activeReplacements(reports, s.replacements)
	s.logReports()
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	s.lacksGood.Store(slices.ContainsFunc(objects.Items, func(policy v1alpha1.Policy) bool { return s.lacksGoodVersion(policy.Name) }))
	for _, listener := range listeners {
		listener(reports)
	}
	return nil
}

// lacksGoodVersion reports whether no good version of a policy, or of a mirror's parameters, is in memory.
func (s *Store) lacksGoodVersion(name string) bool {
	if slices.ContainsFunc(s.BuiltIn, func(source engine.Source) bool { return source.Name == name }) {
		_, known := s.parameters[name]
		return !known
	}
	report, _ := s.Report(name)
	return !report.Active
}
