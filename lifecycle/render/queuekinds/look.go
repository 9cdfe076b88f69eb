// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queuekinds

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
)

// patience is how long a look waits for what there is of a new kind, in machine
// time. What takes longer is known at a later look.
const patience = 5 * time.Second

// look finds out which kinds are served, and watches them, and no others.
func (w *Watch) look(ctx context.Context) {
	changed := false
	for version, kinds := range byVersion(w.settings.Kinds) {
		resources, err := w.resources(ctx, version)
		if err != nil {
			if ctx.Err() == nil {
				w.settings.Logger.V(1).Info("the API server does not say which kinds it serves; asking again", "version", version, "reason", err.Error())
			}
			continue // what was known stays
		}
		for _, kind := range kinds {
			at := slices.IndexFunc(resources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind })
			if at < 0 {
				changed = w.forget(kind) || changed
				continue
			}
			w.begin(ctx, kind, version.WithResource(resources[at].Name))
		}
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.tell(wait) || changed {
		w.everything()
	}
}

// resources are those of a version, without their subresources; none where it is
// not served.
func (w *Watch) resources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	list := &metav1.APIResourceList{}
	err := w.discovery.RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") }), err
}

// begin watches a kind that is served.
func (w *Watch) begin(ctx context.Context, kind schema.GroupVersionKind, resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.absent, kind)
	if w.served[kind] == nil {
		w.served[kind] = w.watch(ctx, resource)
	}
}

// tell makes known what there is of each new kind, once that is read. It tells
// whether any is new.
func (w *Watch) tell(ctx context.Context) bool {
	w.mu.RLock()
	untold := map[schema.GroupVersionKind]*informer{}
	for kind, watched := range w.served {
		if !watched.told {
			untold[kind] = watched
		}
	}
	w.mu.RUnlock()
	fresh := false
	for kind, watched := range untold {
		if !toolscache.WaitForCacheSync(ctx.Done(), watched.handled.HasSynced) {
			continue
		}
		w.mu.Lock()
		watched.told, fresh = true, true
		w.mu.Unlock()
		w.settings.Logger.Info("a kind of an engine is served", "kind", kind)
	}
	return fresh
}

// forget watches a kind no longer that is not served any more. It tells whether it
// was.
func (w *Watch) forget(kind schema.GroupVersionKind) bool {
	w.mu.Lock()
	watched := w.served[kind]
	delete(w.served, kind)
	w.absent[kind] = true
	w.mu.Unlock()
	if watched == nil {
		return false
	}
	watched.stop()
	w.settings.Logger.Info("a kind of an engine is not served any more", "kind", kind)
	return true
}

// stop watches nothing any more.
func (w *Watch) stop() {
	w.mu.RLock()
	served := maps.Clone(w.served)
	w.mu.RUnlock()
	// Not under the lock, which handlers want that are still at work.
	for _, watched := range served {
		watched.stop()
	}
}

func byVersion(kinds []schema.GroupVersionKind) map[schema.GroupVersion][]schema.GroupVersionKind {
	versions := map[schema.GroupVersion][]schema.GroupVersionKind{}
	for _, kind := range kinds {
		versions[kind.GroupVersion()] = append(versions[kind.GroupVersion()], kind)
	}
	return versions
}
