// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// The intervals of a Watcher, in machine time.
const (
	// updateInterval is the shortest time between two updates of the data: objects can change all the time.
	updateInterval = time.Second
	// retryInterval is the time between two attempts to list a kind, and retryTooLargeInterval that for a kind that
	// exceeds the limits.
	retryInterval, retryTooLargeInterval = 5 * time.Second, 5 * time.Minute
)

// Watcher lists and watches the kinds of objects that policies read. It is safe for concurrent use.
type Watcher struct {
	// Client reads the objects.
	Client dynamic.Interface
	// Mapper finds the resources of kinds.
	Mapper meta.RESTMapper
	// Logger logs why a kind cannot be read.
	Logger logr.Logger
	// Notify is called after changes, at most once in a second.
	Notify func()

	mu      sync.Mutex
	running map[string]*watched
	ended   sync.WaitGroup
	changed chan struct{}
	// stopped: Start ended, and nothing is watched any more.
	stopped bool
}

// watched is a kind that is watched.
type watched struct {
	*collection
	cancel context.CancelFunc
	// tried: the first list ended, with or without an error. It is guarded by the watcher's mu.
	tried bool
}

// Start calls Notify after changes until ctx ends, and then stops all watches.
func (w *Watcher) Start(ctx context.Context) {
	changes := w.changes()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-changes:
			w.Notify()
			wait(ctx, updateInterval)
		}
	}
	w.SetKinds(ctx, nil)
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.ended.Wait()
}

// changes returns the channel that has an element after a change.
func (w *Watcher) changes() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{}, 1)
	}
	return w.changed
}

// notify makes Start call Notify.
func (w *Watcher) notify() {
	select {
	case w.changes() <- struct{}{}:
	default:
	}
}

// wait waits for a machine time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d) //nolint:forbidigo // machine time
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// SetKinds starts and stops watches, so that exactly these kinds are watched until ctx ends. Secrets are ignored, and of
// several versions of one kind all but the first.
func (w *Watcher) SetKinds(ctx context.Context, kinds []v1alpha1.PolicyDataKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	desired := make(map[string]v1alpha1.PolicyDataKind, len(kinds))
	for _, kind := range ValidKinds(kinds) {
		desired[kindKey(&kind)] = kind
	}
	for id, running := range w.running {
		if _, ok := desired[id]; !ok {
			running.cancel()
			delete(w.running, id)
		}
	}
	for id, kind := range desired {
		if w.running[id] != nil {
			continue
		}
		if w.running == nil {
			w.running = make(map[string]*watched)
		}
		watchCtx, cancel := context.WithCancel(ctx)
		started := &watched{collection: newCollection(kind), cancel: cancel}
		w.running[id] = started
		w.ended.Go(func() { w.run(watchCtx, started) })
	}
}

// kindKey identifies a kind with what is read of it.
func kindKey(kind *v1alpha1.PolicyDataKind) string {
	return fmt.Sprintf("%s %s %s %q", kind.APIVersion, kind.Kind, Scope(kind), kind.Fields)
}

// ValidKinds returns the kinds that policies may read: no Secrets, and one version of each.
func ValidKinds(kinds []v1alpha1.PolicyDataKind) []v1alpha1.PolicyDataKind {
	var valid []v1alpha1.PolicyDataKind
	for i := range kinds {
		same := func(other v1alpha1.PolicyDataKind) bool {
			return other.Kind == kinds[i].Kind && other.Group() == kinds[i].Group()
		}
		if !kinds[i].IsSecret() && !slices.ContainsFunc(valid, same) {
			valid = append(valid, kinds[i])
		}
	}
	return valid
}

// Kinds returns the objects of all kinds.
func (w *Watcher) Kinds() []engine.ObjectKind {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]sizedKind, 0, len(w.running))
	for _, running := range w.running {
		kind, count, bytes := running.snapshot()
		all = append(all, sizedKind{kind, count, bytes})
	}
	return limitKinds(all)
}

// Loaded reports whether each kind was listed, or could not be.
func (w *Watcher) Loaded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, running := range w.running {
		if !running.tried {
			return false
		}
	}
	return true
}

// run keeps a collection up to date until ctx ends.
func (w *Watcher) run(ctx context.Context, to *watched) {
	for ctx.Err() == nil {
		err := w.listAndWatch(ctx, to)
		if ctx.Err() != nil {
			return
		}
		interval := retryInterval
		var tooLarge tooLargeError
		var unreadable unreadableError
		switch isTooLarge := errors.As(err, &tooLarge); {
		case err == nil: // the API server no longer knows the version of the watch
			interval = updateInterval
		case isTooLarge:
			interval = retryTooLargeInterval
			w.fail(to, err)
		case isRefused(err) || errors.As(err, &unreadable) || !to.isLoaded():
			w.fail(to, err)
		default: // the objects stay as they were
			w.Logger.V(1).Info("Failed to watch objects for policies, retrying", "kind", to.kind.Kind, "error", err.Error())
		}
		wait(ctx, interval)
	}
}

// fail makes a kind unavailable.
func (w *Watcher) fail(to *watched, err error) {
	if to.fail(err.Error()) {
		w.Logger.Info("Failed to read objects for policies; policies that read them fail", "apiVersion", to.kind.APIVersion, "kind", to.kind.Kind,
			"error", err.Error())
	}
	w.markTried(to)
}

func (w *Watcher) markTried(to *watched) {
	w.mu.Lock()
	to.tried = true
	w.mu.Unlock()
	w.notify()
}
