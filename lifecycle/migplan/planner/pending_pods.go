// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// batchDelay is how long changes are collected before a decision, in machine time.
const batchDelay = 250 * time.Millisecond

// pendingPods caches the pending pods that request MIG instances and stores nothing of other
// unbound pods. It is an event source of the planner.
type pendingPods struct {
	client *typed.CoreV1Client
	logger logr.Logger

	mutex    sync.Mutex
	byUID    map[types.UID]*pendingPod
	synced   chan struct{}
	syncOnce sync.Once
	enqueue  func()
}

func newPendingPods(cfg *rest.Config, logger logr.Logger) (*pendingPods, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := typed.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create pod client: %w", err)
	}
	return &pendingPods{
		client: client, logger: logger, byUID: map[types.UID]*pendingPod{}, synced: make(chan struct{}), enqueue: func() {},
	}, nil
}

// list returns the pending pods; they are shared and read-only.
func (p *pendingPods) list() []*pendingPod {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	all := make([]*pendingPod, 0, len(p.byUID))
	for _, w := range p.byUID {
		all = append(all, w)
	}
	return all
}

// Start implements source.TypedSource: it watches the unbound pods until ctx ends and requests
// a decision when a pod becomes pending or stops being pending.
func (p *pendingPods) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.enqueue = func() { queue.AddAfter(planRequest, batchDelay) }
	unbound := fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	listWatch := cache.ToListWatcherWithWatchListSemantics(
		cache.NewListWatchFromClient(p.client.RESTClient(), "pods", metav1.NamespaceAll, unbound), p.client)
	reflector := cache.NewReflectorWithOptions(listWatch, &corev1.Pod{}, p, cache.ReflectorOptions{
		Name: "planner", TypeDescription: "unbound pods", Logger: &p.logger,
	})
	go reflector.RunWithContext(logr.NewContext(ctx, p.logger))
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (p *pendingPods) WaitForSync(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the list of unbound pods: %w", ctx.Err())
	}
}

// Transformer implements cache.TransformingStore: during a list it keeps only the names of pods
// that are not pending for MIG instances.
func (*pendingPods) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		pod.ManagedFields = nil
		if _, pending := parsePendingPod(pod); pending {
			return pod, nil
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		}}, nil
	}
}

// Add implements cache.ReflectorStore.
func (p *pendingPods) Add(object any) error { return p.upsert(object) }

// Update implements cache.ReflectorStore.
func (p *pendingPods) Update(object any) error { return p.upsert(object) }

func (p *pendingPods) upsert(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("store pod: unexpected type %T", object)
	}
	w, pending := parsePendingPod(pod)
	p.mutex.Lock()
	_, wasPending := p.byUID[pod.UID]
	if pending {
		p.byUID[pod.UID] = w
	} else {
		delete(p.byUID, pod.UID)
	}
	p.mutex.Unlock()
	if pending || wasPending {
		p.enqueue()
	}
	return nil
}

// Delete implements cache.ReflectorStore. It also runs for pods that were bound, since they
// leave the selection.
func (p *pendingPods) Delete(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("store pod: unexpected type %T", object)
	}
	p.mutex.Lock()
	_, wasPending := p.byUID[pod.UID]
	delete(p.byUID, pod.UID)
	p.mutex.Unlock()
	if wasPending {
		p.enqueue()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (p *pendingPods) Replace(list []any, _ string) error {
	all := map[types.UID]*pendingPod{}
	for _, object := range list {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("store pod: unexpected type %T", object)
		}
		if w, pending := parsePendingPod(pod); pending {
			all[pod.UID] = w
		}
	}
	p.mutex.Lock()
	p.byUID = all
	p.mutex.Unlock()
	p.syncOnce.Do(func() { close(p.synced) })
	p.enqueue()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*pendingPods) Resync() error { return nil }
