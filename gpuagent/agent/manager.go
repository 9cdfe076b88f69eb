// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
)

// newManager is a manager that sees this node's pods and its GPUNode, and nothing else.
func newManager(ctx context.Context, cfg *Config, logger logr.Logger) (ctrl.Manager, error) {
	rest, err := cfg.RESTConfig()
	if err != nil {
		return nil, err
	}
	options, err := cfg.ManagerOptions(logger)
	if err != nil {
		return nil, err
	}
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Pod{}:       {Field: fields.OneTermEqualSelector(devices.FieldNodeName, cfg.NodeName), Transform: trimPod, UnsafeDisableDeepCopy: ptr.To(true)}, // they are only read
		&v1alpha1.GPUNode{}: {Field: fields.OneTermEqualSelector("metadata.name", cfg.NodeName)},
	}
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	mgr, err := ctrl.NewManager(rest, options)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, devices.FieldNodeName, func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
}

// trimPod leaves of a pod what the agent reads: who it is, what its containers ask for and
// are told, whether the kubelet knows it, and whether it has ended.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.Annotations = nil, nil
	pod.Spec.Volumes, pod.Spec.Affinity, pod.Spec.Tolerations = nil, nil, nil
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, StartTime: pod.Status.StartTime}
	return pod, nil
}

// addEventHandlers wakes the loop when the GPUNode's spec changes, and when a pod comes, goes, or
// goes on in its life.
func (a *agent) addEventHandlers(ctx context.Context, source cache.Cache) error {
	nodes, err := source.GetInformer(ctx, &v1alpha1.GPUNode{})
	if err != nil {
		return err
	}
	if _, err := nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.cancelSuperseded(o.(*v1alpha1.GPUNode)); a.trigger() },
		DeleteFunc: func(any) { a.cancelSuperseded(nil); a.trigger() },
		UpdateFunc: func(before, after any) {
			a.cancelSuperseded(after.(*v1alpha1.GPUNode))
			if before.(*v1alpha1.GPUNode).Generation != after.(*v1alpha1.GPUNode).Generation {
				a.trigger()
			}
		},
	}); err != nil {
		return err
	}
	pods, err := source.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = pods.AddEventHandler(a.newEventHandler(func(before, after any) bool {
		was, is := before.(*corev1.Pod).Status, after.(*corev1.Pod).Status
		return was.Phase != is.Phase || (was.StartTime == nil) != (is.StartTime == nil)
	}))
	return err
}

func (a *agent) newEventHandler(matters func(before, after any) bool) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.trigger() },
		DeleteFunc: func(any) { a.trigger() },
		UpdateFunc: func(before, after any) {
			if matters(before, after) {
				a.trigger()
			}
		},
	}
}
