// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/owner"
)

// assemble returns the workloads of the objects: those that are their own root, and the roots of pods.
func (r Reader) assemble(ctx context.Context, o *observed) ([]*Workload, error) {
	cache := newObjectCache(r.Client, o)
	resolver := newResolver(cache)
	roots := map[types.UID]*Workload{}
	var list []*Workload
	add := func(object *unstructured.Unstructured) *Workload {
		if w := roots[object.GetUID()]; w != nil {
			return w
		}
		kind, _ := workloadkind.Lookup(object.GroupVersionKind().GroupKind())
		w := &Workload{Object: object, Kind: kind.ForObject(object)}
		roots[object.GetUID()] = w
		list = append(list, w)
		return w
	}
	for kind, objects := range o.objects {
		if kind == podKind || kind == kueueWorkloadKind { // pods come below; Kueue's Workloads are for other objects
			continue
		}
		for _, object := range objects {
			root, err := resolver.ResolveObject(ctx, object)
			if err != nil {
				return nil, err
			}
			if root.UID == object.GetUID() && !cache.isOrphaned(ctx, object) {
				add(object)
			}
		}
	}
	for _, pod := range o.pods {
		root, _, err := resolver.Resolve(ctx, podOwnerOf(pod))
		if err != nil {
			return nil, err
		}
		object, err := cache.object(ctx, root)
		if err != nil {
			return nil, err
		}
		if roots[object.GetUID()] == nil && cache.isOrphaned(ctx, object) && (root.UID != pod.UID || !isOverdue(pod)) {
			continue
		}
		w := add(object)
		w.Pods = append(w.Pods, pod)
	}
	byController := map[types.UID]*Workload{}
	for _, w := range list {
		byController[w.Object.GetUID()] = w
	}
	if err := assignControllers(ctx, resolver, o, roots, byController); err != nil {
		return nil, err
	}
	o.addRelated(list, byController)
	sortWorkloads(list)
	return list, nil
}

// assignControllers adds the workloads of the objects below them, such as the ReplicaSets of a Deployment.
func assignControllers(ctx context.Context, resolver *owner.Resolver, o *observed, roots, byController map[types.UID]*Workload) error {
	for kind, objects := range o.objects {
		if kind == podKind {
			continue
		}
		for _, object := range objects {
			root, err := resolver.ResolveObject(ctx, object)
			if err != nil {
				return err
			}
			w := roots[root.UID]
			if w == nil {
				continue
			}
			byController[object.GetUID()] = w
			if root.UID != object.GetUID() && kind != kueueWorkloadKind {
				w.Parts = append(w.Parts, object)
			}
		}
	}
	return nil
}

// addRelated adds clocks, Kueue's Workloads, Services, Ingresses and events to workloads.
func (o *observed) addRelated(list []*Workload, byController map[types.UID]*Workload) {
	for _, queued := range o.objects[kueueWorkloadKind] {
		if w := byController[types.UID(queued.GetLabels()[workloadkind.LabelKueueJobUID])]; w != nil {
			w.Queued = queued
		} else if reference := metav1.GetControllerOf(queued); reference != nil && byController[reference.UID] != nil {
			byController[reference.UID].Queued = queued
		}
	}
	slices.SortFunc(o.events, func(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a).Time) })
	for i := range o.events {
		if w := byController[o.events[i].InvolvedObject.UID]; w != nil {
			w.FailedCreates = append(w.FailedCreates, o.events[i].Message)
		}
	}
	for _, w := range list {
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		w.Clock = o.clockOf(w)
		sets := w.podLabels()
		for i := range o.services {
			if service := &o.services[i]; service.Namespace == w.Object.GetNamespace() && selectsAny(service.Spec.Selector, sets) {
				w.Services = append(w.Services, service)
			}
		}
		for i := range o.ingresses {
			if leadsTo(&o.ingresses[i], w.Services) {
				w.Ingresses = append(w.Ingresses, &o.ingresses[i])
			}
		}
	}
}

func eventTime(event *corev1.Event) *metav1.Time {
	if !event.LastTimestamp.IsZero() {
		return &event.LastTimestamp
	}
	return &metav1.Time{Time: event.EventTime.Time}
}

// clockOf returns the clock of a workload. Another user's workload of the same name may have one, too.
func (o *observed) clockOf(w *Workload) *v1alpha1.WorkloadClock {
	var found *v1alpha1.WorkloadClock
	for i := range o.clocks {
		clock := &o.clocks[i]
		root := clock.Spec.Root
		group := schema.FromAPIVersionAndKind(root.APIVersion, root.Kind).GroupKind()
		if clock.Namespace != w.Object.GetNamespace() || root.Name != w.Object.GetName() || group != w.Object.GroupVersionKind().GroupKind() {
			continue
		}
		if found == nil || clock.Status.RootUID == w.Object.GetUID() {
			found = clock
		}
	}
	return found
}

// podLabels returns the labels of the pods and of the pod templates.
func (w *Workload) podLabels() []labels.Set {
	var sets []labels.Set
	for _, template := range workloadkind.Templates(w.Object.GroupVersionKind().GroupKind(), w.Object.Object) {
		found, _, _ := unstructured.NestedStringMap(template.Body, "metadata", "labels")
		sets = append(sets, found)
	}
	for _, pod := range w.Pods {
		sets = append(sets, pod.Labels)
	}
	return sets
}

func selectsAny(selector map[string]string, sets []labels.Set) bool {
	return len(selector) > 0 && slices.ContainsFunc(sets, func(set labels.Set) bool { return labels.SelectorFromSet(selector).Matches(set) })
}

func leadsTo(ingress *networkingv1.Ingress, services []*corev1.Service) bool {
	return slices.ContainsFunc(services, func(service *corev1.Service) bool {
		return service.Namespace == ingress.Namespace && slices.Contains(backendsOf(ingress), service.Name)
	})
}

// objectCache reads metadata of the objects that were listed, and of all others from the API server.
type objectCache struct {
	client.Client
	listed map[objectKey]*unstructured.Unstructured
}

func newObjectCache(c client.Client, o *observed) *objectCache {
	cache := &objectCache{Client: c, listed: map[objectKey]*unstructured.Unstructured{}}
	for _, objects := range o.objects {
		for _, object := range objects {
			cache.listed[keyOf(object)] = object
		}
	}
	return cache
}

// newResolver returns the resolver of root workloads that lifecycle uses. Objects of an unknown kind that
// control pods count as workloads: users may not read the definitions of kinds.
func newResolver(cache *objectCache) *owner.Resolver {
	return owner.NewResolver(cache, cache.RESTMapper(), func(context.Context, *meta.RESTMapping) (bool, error) { return true, nil })
}

// Get implements client.Reader.
func (c *objectCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if metadata, ok := into.(*metav1.PartialObjectMetadata); ok {
		if object := c.listed[objectKey{into.GetObjectKind().GroupVersionKind().GroupKind(), key}]; object != nil {
			return metadataOf(object, metadata)
		}
	}
	return c.Client.Get(ctx, key, into, options...)
}

// isOrphaned reports whether the controller of an object does not exist: the garbage collector deletes the object.
func (c *objectCache) isOrphaned(ctx context.Context, object metav1.Object) bool {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return false
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind))
	err := c.Get(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: controller.Name}, found)
	return apierrors.IsNotFound(err) || err == nil && found.UID != controller.UID
}

// overduePeriod is the time after the deadline of a pod's deletion from which the pod hangs.
const overduePeriod = time.Minute

// isOverdue reports whether a pod should have ended, and still holds its GPUs.
func isOverdue(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && policytime.MachineNow().Sub(pod.DeletionTimestamp.Time) > overduePeriod
}

// object returns a root as listed or from the API server.
func (c *objectCache) object(ctx context.Context, root owner.Root) (*unstructured.Unstructured, error) {
	key := objectKey{root.GroupKind(), types.NamespacedName{Namespace: root.Namespace, Name: root.Name}}
	if object := c.listed[key]; object != nil {
		return object, nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(root.GroupVersionKind)
	if err := c.Client.Get(ctx, key.NamespacedName, object); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", root.Kind, root.Name, err)
	}
	c.listed[key] = object
	return object, nil
}

// podOwnerOf returns the fields of a pod that its root depends on.
func podOwnerOf(pod *corev1.Pod) *podcache.Pod {
	found := &podcache.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Group: pod.Labels[v1alpha1.LabelKueuePodGroup]}
	if c := metav1.GetControllerOf(pod); c != nil {
		found.Controller = podcache.Owner{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
	}
	return found
}
