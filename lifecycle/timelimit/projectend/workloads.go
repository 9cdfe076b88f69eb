// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projectend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// pageSize is the number of objects in one answer of the API server.
const pageSize = 250

// canWait reports whether objects of a kind are searched for those without pods. Of kinds without templates only the
// objects below them, such as Kueue's Workloads, tell whether they use GPUs.
func canWait(kind workloadkind.Kind) bool { return len(kind.Templates) > 0 }

// canBeMarked reports whether Sluice stops the kind by a patch. The pod cache has all pods with GPUs.
func canBeMarked(kind workloadkind.Kind) bool {
	return kind.StopAction.Method != workloadkind.StopNever && kind.StopAction.Method != workloadkind.StopByDeletion
}

// isWaiting reports whether an object requests pods that can request GPUs.
func isWaiting(kind workloadkind.Kind, object *unstructured.Unstructured) bool {
	return object.GetDeletionTimestamp() == nil && !kind.IsFinished(object) && !workloadkind.IsPaused(object) &&
		workload.MayRequestGPUs(kind.GroupKind, object.Object)
}

// findWorkloads returns the roots of the objects in a namespace that are to be stopped, each once: those without GPU pods.
func (r *Reconciler) findWorkloads(ctx context.Context, namespace string) (roots []owner.Root, err error) {
	known := map[types.UID]bool{}
	err = r.forEach(ctx, namespace, canWait, func(kind workloadkind.Kind, object *unstructured.Unstructured) error {
		if !isWaiting(kind, object) {
			return nil
		}
		root, err := r.Workloads.RootOf(ctx, object)
		if err != nil || known[root.UID] || isFoundItself(root, object) || r.Workloads.HasPods(root) {
			return err
		}
		known[root.UID] = true
		roots = append(roots, root)
		return nil
	})
	return roots, err
}

// isFoundItself reports whether the root of an object is found without the object, as the Deployment of a ReplicaSet is. A
// queued workload is suspended; only its Workload waits.
func isFoundItself(root owner.Root, object *unstructured.Unstructured) bool {
	kind, known := workloadkind.Lookup(root.GroupKind())
	return root.UID != object.GetUID() && known && canWait(kind) && object.GroupVersionKind().Group != workloadkind.GroupKueue
}

// forEach calls do with each object of each kind that is stopped by a patch, installed and among those given. It
// continues after an error.
func (r *Reconciler) forEach(
	ctx context.Context, namespace string, among func(workloadkind.Kind) bool, do func(workloadkind.Kind, *unstructured.Unstructured) error,
) error {
	var problems []error
	for _, kind := range workloadkind.All() {
		if !canBeMarked(kind) || !among(kind) {
			continue
		}
		mapping, err := r.Kinds.RESTMapping(kind.GroupKind)
		switch {
		case meta.IsNoMatchError(err):
			continue
		case err != nil:
			problems = append(problems, fmt.Errorf("discover %s: %w", kind.GroupKind, err))
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(mapping.GroupVersionKind)
		for next := true; next; next = list.GetContinue() != "" {
			err := r.Live.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(list.GetContinue()))
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // an API that was removed, or is not Sluice's to stop
				break
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("list %s in namespace %s: %w", kind.Resource, namespace, err))
				break
			}
			for i := range list.Items {
				problems = append(problems, do(kind, &list.Items[i]))
			}
		}
	}
	return errors.Join(problems...)
}

// release removes the marks of a renewed project from the objects that it stopped, and says on each how to start it.
// Stops at a limit keep theirs until they end. The clock controller releases what it stopped.
func (r *Reconciler) release(ctx context.Context, project *v1alpha1.Project) error {
	now := r.Clock.Now()
	return r.forEach(ctx, project.Status.Namespace.Name, canBeMarked, func(_ workloadkind.Kind, object *unstructured.Unstructured) error {
		until, marked := workloadkind.ParseStoppedUntil(object)
		if !marked || until.IsZero() || until.After(now) {
			return nil
		}
		stopped, err := r.hasStoppedClock(ctx, object)
		if stopped || err != nil {
			return err
		}
		root := owner.Root{
			GroupVersionKind: object.GroupVersionKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		}
		err = r.Stopper.Release(ctx, targetOf(root))
		if errors.Is(err, suspend.ErrGone) || errors.Is(err, suspend.ErrForbidden) {
			return nil
		}
		if err != nil || metav1.GetControllerOf(object) != nil || !workloadkind.IsPaused(object) {
			return err
		}
		if command := workloadkind.StartCommandOf(object); command != "" {
			ctrl.LoggerFrom(ctx).WithName("decisions").Info("Released stopped workload", "project", project.Name, "kind", root.Kind, "workload", root.Name)
			r.Events.Eventf(regarding(root), project, corev1.EventTypeNormal, "StopReleased", "Release",
				"Project %s was renewed. To start the workload: %s", project.Name, command)
		}
		return nil
	})
}

// hasStoppedClock reports whether an object has a clock with a stop.
func (r *Reconciler) hasStoppedClock(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	kind, clock := object.GroupVersionKind(), &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: v1alpha1.WorkloadClockName(kind.Group, kind.Kind, object.GetName())}
	err := r.Client.Get(ctx, key, clock)
	return err == nil && clock.Status.Stopped != nil, client.IgnoreNotFound(err)
}

func targetOf(root owner.Root) suspend.Target {
	return suspend.Target{GroupVersionKind: root.GroupVersionKind, Namespace: root.Namespace, Name: root.Name, UID: root.UID}
}

// regarding returns the object of an event.
func regarding(root owner.Root) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: root.Name, UID: root.UID}}
	object.SetGroupVersionKind(root.GroupVersionKind)
	return object
}

// maxNamedWorkloads is the number of workloads that an event names.
const maxNamedWorkloads = 5

// describeUnstoppable returns the message about workloads that cannot be stopped.
func describeUnstoppable(names []string) string {
	more := ""
	if n := len(names) - maxNamedWorkloads; n > 0 {
		names, more = names[:maxNamedWorkloads], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("Sluice cannot stop %s%s: lifecycle lacks the permission, or does not know how. They get no GPUs, since the "+
		"project accepts no GPU pods", strings.Join(names, ", "), more)
}
