// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
)

// lookForKueue is how often it is asked whether Kueue is there, in machine time,
// until it is.
const lookForKueue = 30 * time.Second

// queues reads Kueue's Workloads, once there are any.
type queues struct{ reader atomic.Pointer[client.Reader] }

// of are the Workloads of a namespace.
func (q *queues) of(ctx context.Context, namespace string) ([]kueueWorkload, error) {
	reader := q.reader.Load()
	if reader == nil {
		return nil, nil
	}
	var list kueueWorkloadList
	if err := (*reader).List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the workloads of Kueue in namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// watchQueues watches Kueue's Workloads as soon as they are served.
func (r *Reconciler) watchQueues(mgr ctrl.Manager, c controller.Controller) error {
	kinds := kueueScheme()
	look := func(ctx context.Context) (bool, error) {
		_, err := mgr.GetRESTMapper().RESTMapping(kueueWorkloads.WithKind("Workload").GroupKind(), kueueWorkloads.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking for Kueue's Workloads: %w", err)
		}
		watched, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: kinds, Mapper: mgr.GetRESTMapper(), DefaultTransform: trimKueue,
			DefaultWatchErrorHandler: quietly,
		})
		if err != nil {
			return false, fmt.Errorf("watching Kueue's Workloads: %w", err)
		}
		if err := c.Watch(source.Kind[client.Object](watched, &kueueWorkload{}, soon(r.projectOf))); err != nil {
			return false, fmt.Errorf("watching Kueue's Workloads: %w", err)
		}
		go func() { _ = watched.Start(ctx) }() // it ends with ctx, and has no other error
		if !watched.WaitForCacheSync(ctx) {
			return false, ctx.Err()
		}
		var reader client.Reader = watched
		r.queues.reader.Store(&reader)
		return true, nil
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		_ = wait.PollUntilContextCancel(ctx, lookForKueue, true, func(ctx context.Context) (bool, error) {
			found, err := look(ctx)
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "looking for the queues of Kueue")
			}
			return found, nil
		}) // it ends with ctx, or once it has found them
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watching Kueue's Workloads: %w", err)
	}
	return nil
}

// quietly says nothing of a kind that has gone: Kueue was taken away.
func quietly(ctx context.Context, r *toolscache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// queued are the project's workloads that wait in queues. Who is new there, or waits
// for another reason, is told, and so is who was ended for others.
func (r *Reconciler) queued(ctx context.Context, project *v1alpha1.Project) ([]Queued, error) {
	all, err := r.queues.of(ctx, project.NamespaceName())
	if err != nil {
		return nil, err
	}
	queued := InQueue(all, r.Pods.ByUID)
	before, now := r.told[project.Name], tellings{}
	if err := r.tellQueued(ctx, project, queued, before, now); err != nil {
		return nil, err
	}
	if err := r.tellEvicted(ctx, project, evicted(all, r.Pods.ByUID), before, now); err != nil {
		return nil, err
	}
	if r.told[project.Name] = now; len(now) == 0 {
		delete(r.told, project.Name)
	}
	return queued, nil
}
