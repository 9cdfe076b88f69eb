// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// QueueWatcherOptions are the options of a QueueWatcher.
type QueueWatcherOptions struct {
	// Kinds come from CRDs.
	Kinds []schema.GroupVersionKind
	// DiscoveryInterval is the time between two discoveries, in machine time; 10 s if 0.
	DiscoveryInterval time.Duration
	// Logger records kinds that begin and end to be served.
	Logger logr.Logger
}

// QueueWatcher watches the objects of the queue kinds that the API server serves. It
// runs in every replica, so that a new leader knows them at once.
type QueueWatcher struct {
	options   QueueWatcherOptions
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	// ready is closed after the first discovery, once the objects are listed.
	ready chan struct{}

	mu        sync.RWMutex
	informers map[schema.GroupVersionKind]*queueInformer
	absent    map[schema.GroupVersionKind]bool
	listeners []queueListener
}

var (
	_ manager.LeaderElectionRunnable = (*QueueWatcher)(nil)
	_ QueueLister                    = (*QueueWatcher)(nil)
)

// NewQueueWatcher returns a QueueWatcher, which the caller starts.
func NewQueueWatcher(config *rest.Config, client *http.Client, options QueueWatcherOptions) (*QueueWatcher, error) {
	if options.DiscoveryInterval <= 0 {
		options.DiscoveryInterval = 10 * time.Second
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("create the discovery client: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("create the metadata client: %w", err)
	}
	return &QueueWatcher{
		options: options, discovery: discoveryClient, metadata: metadataClient,
		ready:     make(chan struct{}),
		informers: map[schema.GroupVersionKind]*queueInformer{}, absent: map[schema.GroupVersionKind]bool{},
	}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *QueueWatcher) NeedLeaderElection() bool { return false }

// IsWatched implements apply.QueueLister.
func (w *QueueWatcher) IsWatched(kind schema.GroupVersionKind) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.informers[kind] != nil && w.informers[kind].synced
}

// IsAbsent implements apply.QueueLister.
func (w *QueueWatcher) IsAbsent(kind schema.GroupVersionKind) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.absent[kind]
}

// List implements apply.QueueLister.
func (w *QueueWatcher) List(kind schema.GroupVersionKind, subject SubjectKind, name string) []*metav1.PartialObjectMetadata {
	w.mu.RLock()
	watched := w.informers[kind]
	w.mu.RUnlock()
	if watched == nil {
		return nil
	}
	return watched.list(subject, name)
}

// Start discovers and watches the kinds until ctx ends. It implements manager.Runnable.
func (w *QueueWatcher) Start(ctx context.Context) error {
	defer w.stopInformers()
	w.discover(ctx)
	close(w.ready)
	wait.UntilWithContext(ctx, w.discover, w.options.DiscoveryInterval)
	return nil
}

// syncTimeout is the time for which a discovery waits for the objects of a new kind, in machine
// time. A later discovery adds what takes longer.
const syncTimeout = 5 * time.Second

// discover watches exactly the kinds that the API server serves.
func (w *QueueWatcher) discover(ctx context.Context) {
	changed := false
	for version, kinds := range groupByVersion(w.options.Kinds) {
		resources, err := w.listResources(ctx, version)
		if err != nil {
			if ctx.Err() == nil {
				w.options.Logger.V(1).Info("Failed to discover kinds; retrying", "version", version, "reason", err.Error())
			}
			continue // the known kinds stay
		}
		for _, kind := range kinds {
			at := slices.IndexFunc(resources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind })
			if at < 0 {
				changed = w.removeInformer(kind) || changed
				continue
			}
			w.ensureInformer(ctx, kind, version.WithResource(resources[at].Name))
		}
	}
	waitCtx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if w.waitForNewKinds(waitCtx) || changed {
		w.enqueueAll()
	}
}

// listResources returns the resources of a version without subresources; none if the
// version is not served.
func (w *QueueWatcher) listResources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	list := &metav1.APIResourceList{}
	err := w.discovery.RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") }), err
}

// ensureInformer starts the watch of a served kind.
func (w *QueueWatcher) ensureInformer(ctx context.Context, kind schema.GroupVersionKind, resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.absent, kind)
	if w.informers[kind] == nil {
		w.informers[kind] = w.startInformer(ctx, resource)
	}
}

// waitForNewKinds waits until the objects of new kinds are listed. It reports whether a
// kind is new.
func (w *QueueWatcher) waitForNewKinds(ctx context.Context) bool {
	w.mu.RLock()
	pending := map[schema.GroupVersionKind]*queueInformer{}
	for kind, watched := range w.informers {
		if !watched.synced {
			pending[kind] = watched
		}
	}
	w.mu.RUnlock()
	found := false
	for kind, watched := range pending {
		if !toolscache.WaitForCacheSync(ctx.Done(), watched.registration.HasSynced) {
			continue
		}
		w.mu.Lock()
		watched.synced, found = true, true
		w.mu.Unlock()
		w.options.Logger.Info("Started watching queue kind", "kind", kind)
	}
	return found
}

// removeInformer ends the watch of a kind that is no longer served. It reports whether
// there was one.
func (w *QueueWatcher) removeInformer(kind schema.GroupVersionKind) bool {
	w.mu.Lock()
	watched := w.informers[kind]
	delete(w.informers, kind)
	w.absent[kind] = true
	w.mu.Unlock()
	if watched == nil {
		return false
	}
	watched.stop()
	w.options.Logger.Info("Stopped watching queue kind, which is no longer served", "kind", kind)
	return true
}

// stopInformers ends all watches.
func (w *QueueWatcher) stopInformers() {
	w.mu.RLock()
	informers := maps.Clone(w.informers)
	w.mu.RUnlock()
	// Running handlers need the lock.
	for _, watched := range informers {
		watched.stop()
	}
}

func groupByVersion(kinds []schema.GroupVersionKind) map[schema.GroupVersion][]schema.GroupVersionKind {
	versions := map[schema.GroupVersion][]schema.GroupVersionKind{}
	for _, kind := range kinds {
		versions[kind.GroupVersion()] = append(versions[kind.GroupVersion()], kind)
	}
	return versions
}
