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

// QueueWatcherOptions say what is watched.
type QueueWatcherOptions struct {
	// Kinds are those that come from CRDs.
	Kinds []schema.GroupVersionKind
	// DiscoveryInterval is how often the API server is asked whether it serves them, in
	// machine time; every 10 s where it is 0.
	DiscoveryInterval time.Duration
	// Logger tells of kinds that come and go.
	Logger logr.Logger
}

// QueueWatcher knows the objects of the kinds that are served. It runs in every replica,
// whether it leads or not, so that one that takes over knows them.
type QueueWatcher struct {
	options   QueueWatcherOptions
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	// ready is closed once it is known which kinds there are, and what there is of
	// them.
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

// NewQueueWatcher makes a Watch, which is to be started.
func NewQueueWatcher(config *rest.Config, client *http.Client, settings QueueWatcherOptions) (*QueueWatcher, error) {
	if settings.DiscoveryInterval <= 0 {
		settings.DiscoveryInterval = 10 * time.Second
	}
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("asking which kinds are served: %w", err)
	}
	read, err := metadata.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("watching metadata: %w", err)
	}
	return &QueueWatcher{
		options: settings, discovery: asked, metadata: read,
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

// Start looks at the kinds until ctx ends. It implements manager.Runnable.
func (w *QueueWatcher) Start(ctx context.Context) error {
	defer w.stopInformers()
	w.discover(ctx)
	close(w.ready)
	wait.UntilWithContext(ctx, w.discover, w.options.DiscoveryInterval)
	return nil
}

// syncTimeout is how long a look waits for what there is of a new kind, in machine
// time. What takes longer is known at a later look.
const syncTimeout = 5 * time.Second

// discover finds out which kinds are served, and watches them, and no others.
func (w *QueueWatcher) discover(ctx context.Context) {
	changed := false
	for version, kinds := range groupByVersion(w.options.Kinds) {
		resources, err := w.listResources(ctx, version)
		if err != nil {
			if ctx.Err() == nil {
				w.options.Logger.V(1).Info("the API server does not say which kinds it serves; asking again", "version", version, "reason", err.Error())
			}
			continue // what was known stays
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
	wait, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if w.waitForNewKinds(wait) || changed {
		w.enqueueAll()
	}
}

// listResources are those of a version, without their subresources; none where it is
// not served.
func (w *QueueWatcher) listResources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	list := &metav1.APIResourceList{}
	err := w.discovery.RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") }), err
}

// ensureInformer watches a kind that is served.
func (w *QueueWatcher) ensureInformer(ctx context.Context, kind schema.GroupVersionKind, resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.absent, kind)
	if w.informers[kind] == nil {
		w.informers[kind] = w.startInformer(ctx, resource)
	}
}

// waitForNewKinds makes known what there is of each new kind, once that is read. It tells
// whether any is new.
func (w *QueueWatcher) waitForNewKinds(ctx context.Context) bool {
	w.mu.RLock()
	untold := map[schema.GroupVersionKind]*queueInformer{}
	for kind, watched := range w.informers {
		if !watched.synced {
			untold[kind] = watched
		}
	}
	w.mu.RUnlock()
	fresh := false
	for kind, watched := range untold {
		if !toolscache.WaitForCacheSync(ctx.Done(), watched.registration.HasSynced) {
			continue
		}
		w.mu.Lock()
		watched.synced, fresh = true, true
		w.mu.Unlock()
		w.options.Logger.Info("a kind of an engine is served", "kind", kind)
	}
	return fresh
}

// removeInformer watches a kind no longer that is not served any more. It tells whether it
// was.
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
	w.options.Logger.Info("a kind of an engine is not served any more", "kind", kind)
	return true
}

// stopInformers watches nothing any more.
func (w *QueueWatcher) stopInformers() {
	w.mu.RLock()
	served := maps.Clone(w.informers)
	w.mu.RUnlock()
	// Not under the lock, which handlers want that are still at work.
	for _, watched := range served {
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
