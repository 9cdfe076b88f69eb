// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

// noticeCache is a cache of Notices with the indexes and the transform of the real one.
type noticeCache struct {
	indexer toolscache.Indexer
	// read counts the Notices in replies.
	read atomic.Int64
}

func newNoticeCache() *noticeCache {
	indexers := toolscache.Indexers{}
	add := func(name string, index client.IndexerFunc) {
		indexers[name] = func(object any) ([]string, error) { return index(object.(client.Object)), nil }
	}
	for name, index := range noticeIndexes {
		add(name, index)
	}
	add(indexExpiryDay, indexNotice(expiryDay))
	return &noticeCache{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers)}
}

// follow returns a client of the server whose writes appear in the cache.
func (c *noticeCache) follow(server client.WithWatch) client.WithWatch {
	refresh := func(ctx context.Context, o client.Object, err error) error {
		n, ok := o.(*v1alpha1.Notice)
		if err != nil || !ok {
			return err
		}
		var current v1alpha1.Notice
		switch err := server.Get(ctx, client.ObjectKeyFromObject(n), &current); {
		case apierrors.IsNotFound(err):
			return c.indexer.Delete(n)
		case err != nil:
			return err
		}
		if _, err := CacheTransform()(&current); err != nil {
			return err
		}
		return c.indexer.Update(&current)
	}
	return interceptor.NewClient(server, interceptor.Funcs{
		Create: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return refresh(ctx, o, s.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return refresh(ctx, o, s.Update(ctx, o, opts...))
		},
		Delete: func(ctx context.Context, s client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return refresh(ctx, o, s.Delete(ctx, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, s client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return refresh(ctx, o, s.SubResource(sub).Update(ctx, o, opts...))
		},
	})
}

// list returns the Notices of an index, or all.
func (c *noticeCache) list(into *v1alpha1.NoticeList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	var found []any
	if options.FieldSelector == nil {
		found = c.indexer.List()
	} else {
		requirements := options.FieldSelector.Requirements()
		if len(requirements) != 1 {
			return fmt.Errorf("%d requirements", len(requirements))
		}
		var err error
		if found, err = c.indexer.ByIndex(requirements[0].Field, requirements[0].Value); err != nil {
			return err
		}
	}
	into.Items = make([]v1alpha1.Notice, 0, len(found))
	for _, object := range found {
		into.Items = append(into.Items, *object.(*v1alpha1.Notice))
	}
	c.read.Add(int64(len(found)))
	return nil
}
