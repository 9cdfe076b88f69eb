// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

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
