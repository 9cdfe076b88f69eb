// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live keeps an engine in step with the Policy objects of the cluster.
//
// Enters: the policies that are built in, and the Policy objects as a cache has
// them, again after each change. Leaves: an engine that has both in force, what
// became of each ([engine.Report]), and whether the engine may be asked yet.
//
// A built-in policy is what the program was built with. The Policy object that
// mirrors it (it has the same name, and the label sluice.dev/built-in) gives it
// spec.parameters and nothing else: whatever else is written there, the built-in
// policy stays as it is. Where one of the parameters is wrong, none of them is taken:
// the last good ones stay, and the reports say which is wrong. An object that takes a built-in policy's name without
// the label gives nothing, and neither does one that has the label without being
// a built-in policy's: both are ignored, and the reports say so.
//
// It never writes the cluster.
package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Store keeps an engine in step with the Policy objects. It runs in every
// replica, whether it leads or not. Its fields are set before it starts.
type Store struct {
	// Engine is what is kept. Nobody else updates it.
	Engine *engine.Engine
	// BuiltIn are the policies that are always in force.
	BuiltIn []engine.Source
	// Logger tells of policies that do not compile.
	Logger logr.Logger

	cache cache.Cache

	// parameters are the parameters of mirrors that are in force; only updates use it.
	parameters map[string]parameterSet

	// listenerMu is held while listeners are called, so that none hears of an older
	// update after a newer one.
	listenerMu sync.Mutex
	// mu guards what follows.
	mu      sync.Mutex
	reports []engine.Report
	// notReady is why the engine must not be asked yet; nil where it may be.
	notReady error
	// replacements are the policies that stand in the place of built-in ones, by their
	// own names.
	replacements map[string]Replacement
	listeners    []func([]engine.Report)
	// logged is what was said of each policy last, so that it is said once.
	logged map[string]string
}

// SetupWithManager makes the manager run k, and have the Policy objects in its
// cache from the start.
func (k *Store) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	k.cache = mgr.GetCache()
	// Asked for now, so that the cache is not filled without them.
	if _, err := k.cache.GetInformer(ctx, &v1alpha1.Policy{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	return mgr.Add(k)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *Store) NeedLeaderElection() bool { return false }

// Start keeps the engine in step until ctx ends. It implements manager.Runnable.
func (k *Store) Start(ctx context.Context) error {
	informer, err := k.cache.GetInformer(ctx, &v1alpha1.Policy{})
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	// One change is remembered while an update is under way: it sees all of them.
	changed := make(chan struct{}, 1)
	handler, err := informer.AddEventHandler(newEventHandler(func() {
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

// newEventHandler tells of every event that may change what is in force: not of a new
// status, which is written because of the last update.
func newEventHandler(tell func()) toolscache.ResourceEventHandler {
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
func (k *Store) update(ctx context.Context) error {
	var objects v1alpha1.PolicyList
	if err := k.cache.List(ctx, &objects); err != nil {
		if ctx.Err() != nil {
			return nil // the program ends, and so does this
		}
		return fmt.Errorf("listing policies: %w", err)
	}
	told := collectSources(k.BuiltIn, objects.Items, k.parameters)
	k.parameters = told.parameters
	reports := told.reports(k.Engine.Update(told.sources))
	k.listenerMu.Lock()
	defer k.listenerMu.Unlock()
	k.mu.Lock()
	k.reports, k.notReady = reports, missingBuiltIns(k.BuiltIn, reports)
	k.replacements = told.activeReplacements(reports, k.replacements)
	k.logReports()
	listeners := slices.Clone(k.listeners)
	k.mu.Unlock()
	for _, listener := range listeners {
		listener(reports)
	}
	return nil
}

// errNotLoaded is why nobody may be admitted before the first update.
var errNotLoaded = errors.New("the policies are not loaded yet")

// OnReports calls the function with the reports of each update, and at once with
// those of the last, where there was one. It is called by one goroutine at a time,
// must be quick, and must neither change the reports nor call OnReports itself.
func (k *Store) OnReports(listener func([]engine.Report)) {
	k.listenerMu.Lock()
	defer k.listenerMu.Unlock()
	k.mu.Lock()
	k.listeners = append(k.listeners, listener)
	reports := k.reports
	k.mu.Unlock()
	if reports != nil {
		listener(reports)
	}
}

// Report is what became of the policy of this name in the last update; false
// where it was not among those, or nothing was loaded yet.
func (k *Store) Report(name string) (engine.Report, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, report := range k.reports {
		if report.Name == name {
			return report, true
		}
	}
	return engine.Report{}, false
}

// Ready is a health check: an error until the Policy objects were read once and
// every built-in policy is in force.
func (k *Store) Ready(*http.Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reports == nil {
		return errNotLoaded
	}
	return k.notReady
}

// missingBuiltIns names the built-in policies that are not in force.
func missingBuiltIns(builtIn []engine.Source, reports []engine.Report) error {
	inForce := make(map[string]bool, len(reports))
	why := make(map[string][]engine.Problem, len(reports))
	for _, report := range reports {
		inForce[report.Name], why[report.Name] = report.Active, report.Problems
	}
	var faults []error
	for _, source := range builtIn {
		switch problems := why[source.Name]; {
		case inForce[source.Name]:
		case len(problems) > 0:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force: %w", source.Name, problems[0]))
		default:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force", source.Name))
		}
	}
	return errors.Join(faults...)
}

// logReports tells what is wrong with policies, each thing once.
func (k *Store) logReports() {
	said := make(map[string]string)
	for _, report := range k.reports {
		if text := summarizeReport(report); text != "" {
			said[report.Name] = text
			if text != k.logged[report.Name] {
				k.Logger.Info("policy", "policy", report.Name, "generation", report.Generation, "inForce", report.Active, "says", text)
			}
		} else if k.logged[report.Name] != "" {
			k.Logger.Info("the policy is mended", "policy", report.Name, "generation", report.Generation)
		}
	}
	k.logged = said
}

func summarizeReport(report engine.Report) string {
	lines := make([]string, 0, len(report.Problems)+len(report.Warnings))
	for _, problem := range append(report.Problems[:len(report.Problems):len(report.Problems)], report.Warnings...) {
		lines = append(lines, problem.Error())
	}
	return strings.Join(lines, "; ")
}
