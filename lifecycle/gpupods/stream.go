// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// notEnded selects the pods that have not ended. One that ends leaves the
// selection, and the server then says that it was deleted.
const notEnded = "status.phase!=Succeeded,status.phase!=Failed"

const (
	// pageTimeout is how long a page of a list may take, in machine time.
	pageTimeout = time.Minute
	// attempts is how often a list is begun anew that grew too old between two of
	// its pages.
	attempts = 3
)

// stream lists and watches pods, and passes on entries.
type stream struct {
	client rest.Interface
	reader reader
	// page is how many pods are decoded at a time.
	page int64
}

// ListWithContext implements [cache.ListerWithContext]. It is asked where the
// server does not stream lists. A list from the server's cache cannot be had in
// pages from every server, so the options are not the caller's.
func (s *stream) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	var list *entries
	var err error
	for range attempts {
		// To go on with an expired list in the server's inconsistent way would keep
		// pods that ended in between.
		if list, err = s.pages(ctx); !apierrors.IsResourceExpired(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list, nil
}

// pages reads a whole list, one page after another.
func (s *stream) pages(ctx context.Context) (*entries, error) {
	var all entries
	options := metav1.ListOptions{FieldSelector: notEnded, Limit: s.page}
	for {
		var pods corev1.PodList
		err := s.client.Get().Resource("pods").VersionedParams(&options, scheme.ParameterCodec).
			Timeout(pageTimeout).Do(ctx).Into(&pods)
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			if f, ok := s.reader.read(&pods.Items[i]); ok {
				all.Items = append(all.Items, &entry{facts: f, resourceVersion: pods.Items[i].ResourceVersion})
			}
		}
		all.ResourceVersion = pods.ResourceVersion
		if options.Continue = pods.Continue; options.Continue == "" {
			return &all, nil
		}
	}
}

// WatchWithContext implements [cache.WatcherWithContext].
func (s *stream) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch, options.FieldSelector = true, notEnded
	pods, err := s.client.Get().Resource("pods").VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	return translated(pods, s.translate), nil
}

// List implements [cache.Lister], which a reflector does not use.
func (s *stream) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements [cache.Watcher], which a reflector does not use.
func (s *stream) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}
