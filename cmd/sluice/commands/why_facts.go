// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/explanation"
)

// workloadFactsReader reads the facts of one workload with the rights of the user. What the user
// may not read is listed in the facts.
type workloadFactsReader struct {
	targetReader
	facts explanation.Facts
	// objects are the UIDs of the workload and of the objects that it controls, without pods.
	objects map[types.UID]bool
	// pods are the UIDs of its pods.
	pods map[types.UID]bool
}

// controllerKinds are the kinds between a root workload and its pods.
var controllerKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
}

// read returns the facts of KIND/NAME or NAME.
func (r *workloadFactsReader) read(ctx context.Context, text string) (explanation.Facts, error) {
	var err error
	if r.facts.Workload, r.facts.Root, err = findRoot(ctx, r, r.facts.Namespace, text); err != nil {
		return r.facts, err
	}
	r.objects, r.pods = map[types.UID]bool{}, map[types.UID]bool{}
	steps := []struct {
		what string
		read func(context.Context) error
	}{
		{"the project", r.readProject},
		{"the clock", r.readClock},
		{"the controllers of pods", r.readControllers},
		{"pods", r.readPods},
		{"events", r.readEvents},
		{"quotas", r.readQuotas},
		{"requests for more time", r.readExtensions},
		{"Kueue's queues", r.readQueued},
		{"pod groups", r.readGroups},
	}
	for _, step := range steps {
		err := step.read(ctx)
		switch {
		case err == nil, meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			r.facts.Unread = append(r.facts.Unread, step.what+": forbidden")
		default:
			r.facts.Unread = append(r.facts.Unread, step.what+": "+err.Error())
		}
	}
	return r.facts, ctx.Err()
}

func (r *workloadFactsReader) readProject(ctx context.Context) error {
	var namespace corev1.Namespace
	if err := r.Get(ctx, types.NamespacedName{Name: r.facts.Namespace}, &namespace); err != nil {
		return err
	}
	r.facts.ProjectName = namespace.Labels[v1alpha1.LabelProject]
	if r.facts.ProjectName == "" {
		return nil
	}
	var project v1alpha1.Project
	if err := r.Get(ctx, types.NamespacedName{Name: r.facts.ProjectName}, &project); err != nil {
		return err
	}
	r.facts.Project = &project
	return nil
}

// readClock reads the clock of the workload.
func (r *workloadFactsReader) readClock(ctx context.Context) error {
	if r.facts.Root != nil {
		r.objects[r.facts.Root.GetUID()] = true
	}
	if r.facts.Workload.Kind == "" {
		return nil
	}
	var clock v1alpha1.WorkloadClock
	key := types.NamespacedName{Namespace: r.facts.Namespace, Name: r.facts.Workload.ClockName()}
	if err := r.Get(ctx, key, &clock); err != nil {
		return err
	}
	r.facts.Clock = &clock
	for _, uid := range clock.Status.PodControllers {
		r.objects[uid] = true
	}
	return nil
}

// readControllers finds the objects that the workload controls.
func (r *workloadFactsReader) readControllers(ctx context.Context) error {
	var all []metav1.PartialObjectMetadata
	for _, kind := range controllerKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.List(ctx, list, client.InNamespace(r.facts.Namespace))
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return err
		}
		all = append(all, list.Items...)
	}
	for range maxOwners {
		before := len(r.objects)
		for i := range all {
			if owner := metav1.GetControllerOf(&all[i]); owner != nil && r.objects[owner.UID] {
				r.objects[all[i].UID] = true
			}
		}
		if len(r.objects) == before {
			break
		}
	}
	return nil
}

func (r *workloadFactsReader) readPods(ctx context.Context) error {
	err := listPages(ctx, r, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			owner := metav1.GetControllerOf(pod)
			if r.objects[pod.UID] || owner != nil && r.objects[owner.UID] {
				r.facts.Pods = append(r.facts.Pods, *pod)
				r.pods[pod.UID] = true
			}
		}
	}, client.InNamespace(r.facts.Namespace))
	slices.SortStableFunc(r.facts.Pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return err
}

// readEvents reads the events on the workload, its controllers and its pods; on a workload that no
// longer exists by its name.
func (r *workloadFactsReader) readEvents(ctx context.Context) error {
	return listPages(ctx, r, func(page *corev1.EventList) {
		for i := range page.Items {
			about := &page.Items[i].InvolvedObject
			former := r.facts.Root == nil && about.Kind == r.facts.Workload.Kind && about.Name == r.facts.Workload.Name
			if r.objects[about.UID] || r.pods[about.UID] || former {
				r.facts.Events = append(r.facts.Events, page.Items[i])
			}
		}
	}, client.InNamespace(r.facts.Namespace))
}

func (r *workloadFactsReader) readQuotas(ctx context.Context) error {
	return listPages(ctx, r, func(page *corev1.ResourceQuotaList) { r.facts.Quotas = append(r.facts.Quotas, page.Items...) },
		client.InNamespace(r.facts.Namespace))
}

func (r *workloadFactsReader) readExtensions(ctx context.Context) error {
	err := listPages(ctx, r, func(page *v1alpha1.ExtensionList) {
		for i := range page.Items {
			target := &page.Items[i].Spec.Target
			if target.Kind == r.facts.Workload.Kind && target.Name == r.facts.Workload.Name {
				r.facts.Extensions = append(r.facts.Extensions, page.Items[i])
			}
		}
	}, client.InNamespace(r.facts.Namespace))
	slices.SortStableFunc(r.facts.Extensions, func(a, b v1alpha1.Extension) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return err
}

func (r *workloadFactsReader) readQueued(ctx context.Context) (err error) {
	r.facts.Queued, err = r.listOwned(ctx, schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"})
	return err
}

func (r *workloadFactsReader) readGroups(ctx context.Context) (err error) {
	r.facts.Groups, err = r.listOwned(ctx, schema.GroupKind{Group: "scheduling.run.ai", Kind: "PodGroup"})
	return err
}

// listOwned returns the objects of a kind that the workload, one of its controllers or pods owns.
func (r *workloadFactsReader) listOwned(ctx context.Context, kind schema.GroupKind) (owned []unstructured.Unstructured, err error) {
	mapping, err := r.RESTMapper().RESTMapping(kind)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.List(ctx, list, client.InNamespace(r.facts.Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
			return r.objects[owner.UID] || r.pods[owner.UID]
		}) {
			owned = append(owned, list.Items[i])
		}
	}
	return owned, nil
}
