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

// batchDelay is for how long news are gathered, in machine time.
const batchDelay = 250 * time.Millisecond

// pendingPods knows the pods that wait for MIG instances. Of all others without a node it
// keeps nothing. It is a source of the planner's requests.
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
		return nil, fmt.Errorf("a client for pods: %w", err)
	}
	return &pendingPods{client: client, logger: logger, byUID: map[types.UID]*pendingPod{}, synced: make(chan struct{}), enqueue: func() {}}, nil
}

// list are those that wait now. They are shared, and read only.
func (p *pendingPods) list() []*pendingPod {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	all := make([]*pendingPod, 0, len(p.byUID))
	for _, w := range p.byUID {
		all = append(all, w)
	}
	return all
}

// Start implements source.TypedSource: it follows the pods without a node until ctx
// ends, and asks for a decision when one begins or ends to wait.
func (p *pendingPods) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.enqueue = func() { queue.AddAfter(planRequest, batchDelay) }
	unbound := fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	follow := cache.ToListWatcherWithWatchListSemantics(
		cache.NewListWatchFromClient(p.client.RESTClient(), "pods", metav1.NamespaceAll, unbound), p.client)
	reflector := cache.NewReflectorWithOptions(follow, &corev1.Pod{}, p, cache.ReflectorOptions{
		Name: "planner", TypeDescription: "pods without a node", Logger: &p.logger,
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
		return fmt.Errorf("waiting for the list of pods without a node: %w", ctx.Err())
	}
}

// Transformer implements cache.TransformingStore: of pods that do not wait for MIG
// instances only the names are kept while all are listed.
func (*pendingPods) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		pod.ManagedFields = nil
		if _, waits := parsePendingPod(pod); waits {
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
		return fmt.Errorf("a %T among the pods", object)
	}
	w, waits := parsePendingPod(pod)
	p.mutex.Lock()
	_, waited := p.byUID[pod.UID]
	if waits {
		p.byUID[pod.UID] = w
	} else {
		delete(p.byUID, pod.UID)
	}
	p.mutex.Unlock()
	if waits || waited {
		p.enqueue()
	}
	return nil
}

// Delete implements cache.ReflectorStore. A pod that gets a node is deleted, too: it
// leaves the selection.
func (p *pendingPods) Delete(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T among the pods", object)
	}
	p.mutex.Lock()
	_, waited := p.byUID[pod.UID]
	delete(p.byUID, pod.UID)
	p.mutex.Unlock()
	if waited {
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
			return fmt.Errorf("a %T among the pods", object)
		}
		if w, waits := parsePendingPod(pod); waits {
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
