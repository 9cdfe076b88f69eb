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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
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

// pageSize is the number of objects of one answer of the API server.
const pageSize = 250

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
		switch isTooLarge := errors.As(err, &tooLarge); {
		case err == nil: // the watch ended
			continue
		case isTooLarge:
			interval = retryTooLargeInterval
			w.fail(to, err)
		case isRefused(err) || errors.As(err, &unreadableError{}) || !to.isLoaded():
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

// errScope reports a kind that is listed with a scope that it does not have.
var errScope = errors.New("the scope is wrong")

// isRefused reports whether an error says that the objects must not, or can no longer, be read.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || errors.Is(err, errScope)
}

// isLoaded reports whether the objects can be read.
func (c *collection) isLoaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unavailable == ""
}

// listAndWatch lists a kind and watches it until the API server no longer knows the version of the list.
func (w *Watcher) listAndWatch(ctx context.Context, to *watched) error {
	resource, err := w.resource(&to.kind)
	if err != nil {
		return err
	}
	version, err := w.list(ctx, resource, to)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		events, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		ended, err := w.receive(ctx, to, events, &version)
		if events.Stop(); ended || err != nil {
			return err
		}
		wait(ctx, updateInterval) // a server that ends each watch at once must not keep this one busy
	}
	return nil
}

// resource returns the resource of a kind, whose scope must be that of the kind.
func (w *Watcher) resource(kind *v1alpha1.PolicyDataKind) (dynamic.ResourceInterface, error) {
	if kind.IsSecret() {
		return nil, errors.New("policies never read Secrets")
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	mapping, err := w.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	switch isNamespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; {
	case isNamespaced && Scope(kind) == engine.ScopeCluster:
		return nil, fmt.Errorf("%w: the kind has namespaces; set scope to Namespace or AllNamespaces", errScope)
	case !isNamespaced && Scope(kind) != engine.ScopeCluster:
		return nil, fmt.Errorf("%w: the kind has no namespaces; set scope to Cluster", errScope)
	}
	return w.Client.Resource(mapping.Resource), nil
}

// list replaces a collection with a complete list, and returns its version.
func (w *Watcher) list(ctx context.Context, resource dynamic.ResourceInterface, to *watched) (string, error) {
	fresh := newCollection(to.kind)
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := resource.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		for i := range page.Items {
			if _, err := fresh.put(&page.Items[i]); err != nil {
				return "", err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			to.replaceWith(fresh)
			w.markTried(to)
			return page.GetResourceVersion(), nil
		}
	}
}

// receive applies the events of a watch. It reports whether the kind has to be listed again.
func (w *Watcher) receive(ctx context.Context, to *watched, events watch.Interface, version *string) (bool, error) {
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return true, nil
		case event, open = <-events.ResultChan():
		}
		if !open {
			return false, nil
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			return true, nil
		}
		*version = object.GetResourceVersion()
		changed := false
		switch event.Type {
		case watch.Added, watch.Modified:
			var err error
			if changed, err = to.put(object); err != nil {
				return true, err
			}
		case watch.Deleted:
			changed = to.remove(object.GetNamespace(), object.GetName())
		case watch.Bookmark, watch.Error:
		}
		if changed {
			w.notify()
		}
	}
}
