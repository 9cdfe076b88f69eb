// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workloads reads the root workloads of namespaces: the objects that users create, with their pods,
// clocks, Services and Ingresses. It finds one by its name, describes its state, and returns the changes that
// stop, start and copy it. It needs no right that a viewer of a project lacks, and writes nothing.
package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// pageSize is the number of objects in one list request.
const pageSize = 500

// Workload is a root workload and what belongs to it.
type Workload struct {
	Object *unstructured.Unstructured
	Kind   workloadkind.Kind
	// Pods are its pods, by name.
	Pods []*corev1.Pod
	// Parts are the objects between it and its pods, such as the ReplicaSets of a Deployment.
	Parts []*unstructured.Unstructured
	// Clock is nil for a workload that has never run with a GPU.
	Clock *v1alpha1.WorkloadClock
	// Queued is the Workload of Kueue; nil without one.
	Queued *unstructured.Unstructured
	// Services select its pods, and Ingresses lead to these.
	Services  []*corev1.Service
	Ingresses []*networkingv1.Ingress
	// FailedCreates are the messages of controllers that could not create its pods, the latest first.
	FailedCreates []string
}

// Reference returns KIND/NAME, as commands accept it.
func (w *Workload) Reference() string {
	return w.Object.GetKind() + "/" + w.Object.GetName()
}

// Reader reads workloads with the rights of the user.
type Reader struct {
	client.Client
}

var (
	podKind           = schema.GroupKind{Kind: "Pod"}
	cronJobKind       = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	kueueWorkloadKind = schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}
)

// observed are the objects of the namespaces that were read.
type observed struct {
	objects   map[schema.GroupKind][]*unstructured.Unstructured
	pods      []*corev1.Pod
	clocks    []v1alpha1.WorkloadClock
	services  []corev1.Service
	ingresses []networkingv1.Ingress
	events    []corev1.Event
}

// List returns the root workloads of a namespace, or of all namespaces if it is empty, by namespace, kind and
// name. Kinds that the user may not list are left out, except pods. So is what the garbage collector deletes, since
// its workload was deleted; a pod that does not end within a minute of its deadline is listed.
func (r Reader) List(ctx context.Context, namespace string) ([]*Workload, error) {
	o, err := r.observe(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return r.assemble(ctx, o)
}

// servedKinds returns the kinds of workloads that the cluster serves, with their versions.
func (r Reader) servedKinds() ([]schema.GroupVersionKind, error) {
	var served []schema.GroupVersionKind
	for _, kind := range workloadkind.All() {
		mapping, err := r.RESTMapper().RESTMapping(kind.GroupKind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up resource of %s: %w", kind.GroupKind, err)
		}
		served = append(served, mapping.GroupVersionKind)
	}
	return served, nil
}

// observe lists all objects at the same time.
func (r Reader) observe(ctx context.Context, namespace string) (*observed, error) {
	kinds, err := r.servedKinds()
	if err != nil {
		return nil, err
	}
	o := &observed{objects: map[schema.GroupKind][]*unstructured.Unstructured{}}
	lists := listing{ctx: ctx, client: r.Client, namespace: namespace}
	for _, kind := range kinds {
		lists.add(kind.Kind, func() client.ObjectList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			return list
		}, func(page client.ObjectList) {
			items := page.(*unstructured.UnstructuredList).Items
			for i := range items {
				o.objects[kind.GroupKind()] = append(o.objects[kind.GroupKind()], &items[i])
			}
		})
	}
	lists.add("WorkloadClock", func() client.ObjectList { return &v1alpha1.WorkloadClockList{} }, func(page client.ObjectList) {
		o.clocks = append(o.clocks, page.(*v1alpha1.WorkloadClockList).Items...)
	})
	lists.add("Service", func() client.ObjectList { return &corev1.ServiceList{} }, func(page client.ObjectList) {
		o.services = append(o.services, page.(*corev1.ServiceList).Items...)
	})
	lists.add("Ingress", func() client.ObjectList { return &networkingv1.IngressList{} }, func(page client.ObjectList) {
		o.ingresses = append(o.ingresses, page.(*networkingv1.IngressList).Items...)
	})
	lists.add("Event", func() client.ObjectList { return &corev1.EventList{} }, func(page client.ObjectList) {
		o.events = append(o.events, page.(*corev1.EventList).Items...)
	}, client.MatchingFields{"reason": failedCreate})
	if err := lists.run(); err != nil {
		return nil, err
	}
	for _, object := range o.objects[podKind] {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
			return nil, fmt.Errorf("decode pod %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
		o.pods = append(o.pods, pod)
	}
	return o, nil
}

// failedCreate is the reason of the events of controllers that could not create a pod.
const failedCreate = "FailedCreate"

// listing runs requests for lists at the same time. Its visits never run at the same time.
type listing struct {
	ctx       context.Context
	client    client.Reader
	namespace string
	requests  []func() error

	lock sync.Mutex
}

// add adds a list of one kind, whose pages visit gets.
func (l *listing) add(kind string, list func() client.ObjectList, visit func(client.ObjectList), options ...client.ListOption) {
	l.requests = append(l.requests, func() error {
		options = append(options, client.InNamespace(l.namespace), client.Limit(pageSize))
		for next := ""; ; {
			page := list()
			err := l.client.List(l.ctx, page, append(options, client.Continue(next))...)
			switch {
			case kind != podKind.Kind && isUnavailable(err):
				return nil
			case err != nil:
				return fmt.Errorf("list %ss: %w", kind, err)
			}
			l.lock.Lock()
			visit(page)
			l.lock.Unlock()
			if next = page.GetContinue(); next == "" {
				return nil
			}
		}
	})
}

// isUnavailable reports whether the user may not read a kind, or the cluster does not serve it.
func isUnavailable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)
}

func (l *listing) run() error {
	results := make(chan error, len(l.requests))
	for _, request := range l.requests {
		go func() { results <- request() }()
	}
	var first error
	for range l.requests {
		if err := <-results; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// sortWorkloads sorts by namespace, kind and name.
func sortWorkloads(list []*Workload) {
	slices.SortFunc(list, func(a, b *Workload) int {
		return cmp.Or(
			cmp.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()),
			cmp.Compare(a.Object.GetKind(), b.Object.GetKind()),
			cmp.Compare(a.Object.GetName(), b.Object.GetName()),
		)
	})
}

// objectKey identifies an object in what was read.
type objectKey struct {
	kind schema.GroupKind
	types.NamespacedName
}

func keyOf(object *unstructured.Unstructured) objectKey {
	return objectKey{object.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
}

// metadataOf returns the metadata of an object.
func metadataOf(object *unstructured.Unstructured, into *metav1.PartialObjectMetadata) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": object.Object["metadata"],
	}, into)
}
