// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"context"
	"errors"
	"fmt"

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

// pageSize is the number of objects of one answer of the API server.
const pageSize = 250

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
