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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

// processQueue processes keys from the queue until it is shut down.
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

// processKey reconciles the object of a key, and adds the key again after an error.
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
		k.log.Warn("Retrying after an error", "object", key, "error", err)
		k.queue.AddRateLimited(key)
	}
}

// admitExistingPods processes the pods that exist at the start in a kubelet's order: first
// running pods, the longest running first, then the others by age. It then queues the pods
// of devices whose pod is gone.
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

// reconcileNode keeps the node's devices on the Node, also after changes by others. It
// updates the labels after the device plugin has read the GPUs. As with a kubelet, a
// deleted Node is registered again only at the next start of this process.
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

// cachedNode returns the Node from the cache, or nil if it does not exist.
func (k *kubelet) cachedNode() *corev1.Node {
	if obj, found, err := k.nodes.GetByKey(k.node.Name); err == nil && found {
		return obj.(*corev1.Node)
	}
	return nil
}

// podsOnNode returns the pods of this node that match, by namespace and name.
func (k *kubelet) podsOnNode(matches func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, obj := range k.pods.List() {
		if pod := obj.(*corev1.Pod); matches(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// podNamed returns a pod of this node, or nil.
func (k *kubelet) podNamed(namespace, name string) *corev1.Pod {
	return k.cachedPod(objectKey(namespace, name))
}

// deviceHolders returns the pods and the state from which PodResources answers.
func (k *kubelet) deviceHolders() ([]*corev1.Pod, devices.State) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.podsOnNode(func(pod *corev1.Pod) bool { return !workload.IsPodTerminal(pod) }), k.state
}

func objectKey(namespace, name string) string {
	return cache.NewObjectName(namespace, name).String()
}

// nodeKey is the queue's key for the Node itself; a pod's key is namespace/name.
const nodeKey = ""

// informers returns the informers of the node's pods and of the Node itself, which add the
// keys of changed objects to the queue.
func (k *kubelet) informers() (pods, nodes cache.SharedIndexInformer) {
	pods = k.informer("pods", podsOnNode(k.node.Name), &corev1.Pod{}, func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
		}
	})
	nodes = k.informer("nodes", fields.OneTermEqualSelector("metadata.name", k.node.Name), &corev1.Node{}, func(any) { k.queue.Add(nodeKey) })
	return pods, nodes
}

// podsOnNode selects the pods of a node, without those that run as processes of this machine
// (package launcher).
func podsOnNode(node string) fields.Selector {
	return fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", node),
		fields.OneTermNotEqualSelector("metadata.namespace", v1alpha1.SystemNamespace),
		fields.OneTermNotEqualSelector("metadata.namespace", v1alpha1.AgentNamespace))
}

func (k *kubelet) informer(resource string, selector fields.Selector, object runtime.Object, changed func(obj any)) cache.SharedIndexInformer {
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), resource, metav1.NamespaceAll, selector)
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

// withoutManagedFields saves memory: managed fields are often larger than the rest.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
