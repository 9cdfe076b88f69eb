// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/workload"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

// processQueue takes keys from the queue until it is shut down.
func (k *kubelet) processQueue(ctx context.Context) {
	for {
		key, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		k.processKey(ctx, key)
		k.queue.Done(key)
	}
}

// processKey does what a key calls for, and puts it back where that fails.
func (k *kubelet) processKey(ctx context.Context, key string) {
	var err error
	switch key {
	case nodeKey:
		err = k.reconcileNode(ctx)
	case pluginKey:
		err = k.restartPlugin()
	default:
		err = k.reconcilePod(ctx, key)
	}
	if err == nil {
		k.queue.Forget(key)
		return
	}
	if ctx.Err() == nil {
		k.log.Warn("trying again", "object", key, "error", err)
		k.queue.AddRateLimited(key)
	}
}

// admitExistingPods handles the pods that are there at the start in a kubelet's
// order, whatever the order of the watch: those that run, the longest running
// first, then the others by age. Devices whose pod is gone follow.
func (k *kubelet) admitExistingPods(ctx context.Context) {
	pods := k.podsOnNode(func(*corev1.Pod) bool { return true })
	slices.SortFunc(pods, admissionOrder)
	for _, pod := range pods {
		k.processKey(ctx, objectKey(pod.Namespace, pod.Name))
	}
	for _, holder := range k.state.Pods() {
		k.queue.Add(objectKey(holder.Namespace, holder.Name))
	}
}

func admissionOrder(a, b *corev1.Pod) int {
	if first, second := canStart(a), canStart(b); first != second {
		if first {
			return -1
		}
		return 1
	} else if first && a.Status.StartTime != nil && b.Status.StartTime != nil {
		if order := a.Status.StartTime.Compare(b.Status.StartTime.Time); order != 0 {
			return order
		}
	}
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// reconcileNode keeps the devices advertised, whatever others write on the Node; the
// labels are written when the GPUs were looked at.
// A Node that was deleted stays so until this process is started again, as with
// a kubelet.
func (k *kubelet) reconcileNode(ctx context.Context) error {
	node := k.cachedNode()
	if node == nil {
		return nil
	}
	if k.relabel {
		if err := k.labelNode(ctx, node); err != nil {
			return err
		}
		k.relabel = false
	}
	return k.amendNode(ctx, node)
}

// cachedNode returns the Node as last seen, nil where there is none.
func (k *kubelet) cachedNode() *corev1.Node {
	if obj, found, err := k.nodes.GetByKey(k.node.Name); err == nil && found {
		return obj.(*corev1.Node)
	}
	return nil
}

// podsOnNode returns the pods of this node, by namespace and name.
func (k *kubelet) podsOnNode(which func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, obj := range k.pods.List() {
		if pod := obj.(*corev1.Pod); which(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// deviceHolders is what PodResources answers from.
func (k *kubelet) deviceHolders() ([]*corev1.Pod, devices.State) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.podsOnNode(func(pod *corev1.Pod) bool { return !workload.IsPodTerminal(pod) }), k.state
}

func objectKey(namespace, name string) string {
	return cache.NewObjectName(namespace, name).String()
}

// nodeKey is the queue's key for the Node itself; a pod's is namespace/name.
const nodeKey = ""

// informers returns those of the node's pods and of the Node itself, which put
// the key of whatever changes into the queue.
func (k *kubelet) informers() (pods, nodes cache.SharedIndexInformer) {
	pods = k.informer("pods", "spec.nodeName", &corev1.Pod{}, func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
		}
	})
	nodes = k.informer("nodes", "metadata.name", &corev1.Node{}, func(any) { k.queue.Add(nodeKey) })
	return pods, nodes
}

func (k *kubelet) informer(resource, field string, object runtime.Object, changed func(obj any)) cache.SharedIndexInformer {
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), resource, metav1.NamespaceAll,
		fields.OneTermEqualSelector(field, k.node.Name))
	informer := cache.NewSharedIndexInformer(source, object, 0, cache.Indexers{})
	// Both fail only on an informer that has been started or stopped.
	_ = informer.SetTransform(withoutManagedFields)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: changed,
	})
	return informer
}

// withoutManagedFields saves memory: they are often larger than the rest.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
