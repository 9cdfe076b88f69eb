// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"sluice.dev/cmd/sluice/workloads"
)

// workloadFactsReader reads the facts of one workload with the rights of the user. What the user
// may not read is listed in the facts.
type workloadFactsReader struct {
	client.Client
	facts explanation.Facts
	// objects are the UIDs of the workload and of the objects that it controls, without pods.
	objects map[types.UID]bool
	// pods are the UIDs of its pods.
	pods map[types.UID]bool
}

// read returns the facts of the workload NAME or KIND/NAME, or of the workload that this is a part of.
func (r *workloadFactsReader) read(ctx context.Context, text string) (explanation.Facts, error) {
	r.objects, r.pods = map[types.UID]bool{}, map[types.UID]bool{}
	if err := r.find(ctx, text); err != nil {
		return r.facts, err
	}
	steps := []struct {
		what string
		read func(context.Context) error
	}{
		{"the project", r.readProject},
		{"the clock", r.readClock},
		{"pods", r.readRemainingPods},
		{"other pods", r.readNeighbors},
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
	slices.SortStableFunc(r.facts.Pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return r.facts, ctx.Err()
}

// find finds the workload, or its clock if it no longer exists.
func (r *workloadFactsReader) find(ctx context.Context, text string) error {
	named, err := r.parse(text)
	if err != nil {
		return err
	}
	w, err := workloads.Reader{Client: r.Client}.Find(ctx, r.facts.Namespace, text)
	var part *workloads.PartError
	var missing *workloads.MissingError
	switch {
	case errors.As(err, &part):
		w = part.Workload
	case errors.As(err, &missing):
		r.facts.Others = missing.Others
		r.facts.Workload, err = r.findFormer(ctx, named)
		return err
	case err != nil:
		return err
	}
	r.facts.Root, r.facts.Clock, r.facts.Workload = w.Object, w.Clock, newReference(w.Object.GroupVersionKind(), w.Object.GetName())
	r.objects[w.Object.GetUID()] = true
	for _, part := range w.Parts {
		r.objects[part.GetUID()] = true
	}
	for _, pod := range w.Pods {
		r.addPod(pod)
	}
	return nil
}

// parse returns what the user named: a kind, if there is one, and a name.
func (r *workloadFactsReader) parse(text string) (v1alpha1.WorkloadReference, error) {
	reference, err := workloads.ParseReference(text)
	if err != nil || reference.Resource == "" {
		return v1alpha1.WorkloadReference{Name: reference.Name}, err
	}
	kind, err := workloads.ResolveKind(r.RESTMapper(), reference.Resource)
	if err != nil {
		return v1alpha1.WorkloadReference{}, err
	}
	if kind.Group == v1alpha1.Group {
		return v1alpha1.WorkloadReference{}, fmt.Errorf("%q: want a workload, such as job/training; `sluice whoami` shows your projects", text)
	}
	return newReference(kind, reference.Name), nil
}

func newReference(kind schema.GroupVersionKind, name string) v1alpha1.WorkloadReference {
	apiVersion, kindName := kind.ToAPIVersionAndKind()
	return v1alpha1.WorkloadReference{APIVersion: apiVersion, Kind: kindName, Name: name}
}

// findFormer finds a workload that no longer exists by its clock, the latest first. Without a clock it returns what
// the user named.
func (r *workloadFactsReader) findFormer(ctx context.Context, named v1alpha1.WorkloadReference) (v1alpha1.WorkloadReference, error) {
	if named.Kind != "" {
		return named, nil
	}
	found, latest := named, metav1.Time{}
	list, err := listClocks(ctx, r, r.facts.Namespace, "")
	if apierrors.IsForbidden(err) {
		r.facts.Unread = append(r.facts.Unread, "clocks: forbidden")
		return named, nil
	}
	for i := range list.clocks {
		clock := &list.clocks[i]
		if clock.Spec.Root.Name == named.Name && !clock.CreationTimestamp.Before(&latest) {
			found, latest = clock.Spec.Root, clock.CreationTimestamp
		}
	}
	return found, err
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

// readClock reads the clock of the workload, unless it was found with it.
func (r *workloadFactsReader) readClock(ctx context.Context) error {
	if r.facts.Clock == nil {
		var clock v1alpha1.WorkloadClock
		key := types.NamespacedName{Namespace: r.facts.Namespace, Name: r.facts.Workload.ClockName()}
		if r.facts.Workload.Kind == "" {
			return nil
		}
		if err := r.Get(ctx, key, &clock); err != nil {
			return err
		}
		r.facts.Clock = &clock
	}
	for _, uid := range r.facts.Clock.Status.PodControllers {
		r.objects[uid] = true
	}
	return nil
}

// readRemainingPods reads the pods of a workload that no longer exists.
func (r *workloadFactsReader) readRemainingPods(ctx context.Context) error {
	if r.facts.Root != nil || len(r.objects) == 0 {
		return nil
	}
	return listPages(ctx, r, func(page *corev1.PodList) {
		for i := range page.Items {
			if owner := metav1.GetControllerOf(&page.Items[i]); owner != nil && r.objects[owner.UID] {
				r.addPod(&page.Items[i])
			}
		}
	}, client.InNamespace(r.facts.Namespace))
}

// readNeighbors reads the pods of the namespace if a pod of the workload waits because of anti-affinity.
func (r *workloadFactsReader) readNeighbors(ctx context.Context) error {
	if !slices.ContainsFunc(r.facts.Pods, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && explanation.NamesAntiAffinity(c.Message)
		})
	}) {
		return nil
	}
	return listPages(ctx, r, func(page *corev1.PodList) {
		r.facts.Neighbors = append(r.facts.Neighbors, page.Items...)
	}, client.InNamespace(r.facts.Namespace))
}

func (r *workloadFactsReader) addPod(pod *corev1.Pod) {
	r.facts.Pods = append(r.facts.Pods, *pod)
	r.pods[pod.UID] = true
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
