// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/gpuagent/devices"
)

// nodeCache caches the node's GPUNode and the pods bound to the node. It has them once synced reports true.
type nodeCache struct {
	node           string
	gpuNodes, pods cache.Store
	informers      []cache.Controller
}

// newNodeCache returns a cache that calls the handlers after each change.
func newNodeCache(client *kubeClient, gpuNodeHandler, podHandler cache.ResourceEventHandler) *nodeCache {
	c := &nodeCache{node: client.node}
	var gpuNodes, pods cache.Controller
	c.gpuNodes, gpuNodes = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: client.listWatch(client.sluice, resourceGPUNodes, fieldName), ObjectType: &v1alpha1.GPUNode{},
		Transform: stripManagedFields, Handler: gpuNodeHandler,
	})
	c.pods, pods = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: client.listWatch(client.core, resourcePods, devices.FieldNodeName), ObjectType: &corev1.Pod{},
		Transform: trimPod, Handler: podHandler,
	})
	c.informers = []cache.Controller{gpuNodes, pods}
	return c
}

// synced reports whether the cache is filled.
func (c *nodeCache) synced() bool {
	for _, informer := range c.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// gpuNode returns a copy of the GPUNode, or nil.
func (c *nodeCache) gpuNode() *v1alpha1.GPUNode {
	if object, found, err := c.gpuNodes.GetByKey(c.node); err == nil && found {
		return object.(*v1alpha1.GPUNode).DeepCopy()
	}
	return nil
}

// boundPods returns the pods bound to the node. The caller only reads them.
func (c *nodeCache) boundPods(context.Context) ([]corev1.Pod, error) {
	objects := c.pods.List()
	pods := make([]corev1.Pod, 0, len(objects))
	for _, object := range objects {
		pods = append(pods, *object.(*corev1.Pod))
	}
	return pods, nil
}

// stripManagedFields removes an object's managed fields, which the agent does not read.
func stripManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// trimPod removes from a pod what the agent does not read.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.Annotations = nil, agentAnnotations(pod.Annotations)
	pod.Spec.Volumes, pod.Spec.Affinity, pod.Spec.Tolerations = nil, nil, nil
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, StartTime: pod.Status.StartTime, PodIP: pod.Status.PodIP}
	return pod, nil
}

// agentAnnotations returns the annotations that the agent reads: those of the pod's request and of what counts as active.
// A value of the latter that is too long stays invalid.
func agentAnnotations(annotations map[string]string) map[string]string {
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key != v1alpha1.AnnotationActive && !workload.IsRequestAnnotation(key)
	})
	if value, found := annotations[v1alpha1.AnnotationActive]; found {
		annotations[v1alpha1.AnnotationActive] = strings.Clone(value[:min(len(value), v1alpha1.MaxActiveText+1)])
	}
	return annotations
}

// onGPUNode triggers a reconciliation when the GPUNode's spec changes.
func (r *reconciler) onGPUNode() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.cancelSuperseded(o.(*v1alpha1.GPUNode)); r.trigger() },
		DeleteFunc: func(any) { r.cancelSuperseded(nil); r.trigger() },
		UpdateFunc: func(before, after any) {
			r.cancelSuperseded(after.(*v1alpha1.GPUNode))
			if before.(*v1alpha1.GPUNode).Generation != after.(*v1alpha1.GPUNode).Generation {
				r.trigger()
			}
		},
	}
}

// onPod triggers a reconciliation when a pod is added, deleted, acknowledged by the kubelet or enters
// another phase.
func (r *reconciler) onPod() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.trigger() },
		DeleteFunc: func(any) { r.trigger() },
		UpdateFunc: func(before, after any) {
			was, is := before.(*corev1.Pod).Status, after.(*corev1.Pod).Status
			if was.Phase != is.Phase || (was.StartTime == nil) != (is.StartTime == nil) {
				r.trigger()
			}
		},
	}
}
