// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
	"sluice.dev/policies/kaigroup"
)

// Announcer announces and withdraws evictions: an eviction.Announcer.
type Announcer interface {
	Announce(ctx context.Context, announcement eviction.Announcement) error
	Withdraw(ctx context.Context, announcement eviction.Announcement, why string) error
}

// preemptiblePod is the cached class of a bound pod with MIG instances.
type preemptiblePod struct {
	uid      types.UID
	priority int32
}

// parsePreemptiblePod selects the bound pods with MIG instances that may be preempted.
func parsePreemptiblePod(pod *corev1.Pod) (preemptiblePod, bool) {
	class := pod.Spec.PriorityClassName
	if pod.Spec.NodeName == "" || pod.Spec.Priority == nil || !kaigroup.IsSluiceClass(class) || !kaigroup.ParseClass(class).Preemptible() {
		return preemptiblePod{}, false
	}
	if instances, _ := parseInstanceRequests(pod); len(instances) == 0 {
		return preemptiblePod{}, false
	}
	return preemptiblePod{pod.UID, *pod.Spec.Priority}, true
}

// isGuaranteed reports whether other pods may be preempted for a pod: it belongs to a project and has one of the
// classes that cannot be preempted. Admission and the project's quota hold such pods to the guarantee.
func isGuaranteed(pod *corev1.Pod) bool {
	class := pod.Spec.PriorityClassName
	return pod.Labels[v1alpha1.LabelProject] != "" && kaigroup.IsSluiceClass(class) && !kaigroup.ParseClass(class).Preemptible()
}

// newHolderFunc returns the function that finds the pods that hold instances. It reads the classes and findings
// when it is first called, since most decisions preempt nothing.
func (r *Reconciler) newHolderFunc(gpuNodes map[string]*v1alpha1.GPUNode) func(types.UID) (preemption.Pod, bool) {
	priorities := sync.OnceValue(func() map[types.UID]int32 {
		all := map[types.UID]int32{}
		for _, p := range r.preemptible.Values() {
			all[p.uid] = p.priority
		}
		return all
	})
	over := sync.OnceValue(func() map[types.UID]bool { return overShare(gpuNodes) })
	return func(uid types.UID) (preemption.Pod, bool) {
		pod, known := r.Pods.ByUID(uid)
		if !known {
			return preemption.Pod{}, false
		}
		priority, isPreemptible := priorities()[uid]
		return preemption.Pod{
			UID: uid, Name: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, Priority: priority, Preemptible: isPreemptible,
			Governed: pod.Project != "", Running: pod.Running, Terminating: pod.Deleting, GraceEndsAt: pod.GraceEndsAt, OverShare: over()[uid],
			StartedAt: pod.StartedAt, Root: rootKey(pod), Milli: pod.Milli,
		}, true
	}
}

// overShare returns the pods that use more memory than their share, whether that is excessive or takes the memory that
// other pods were promised.
func overShare(gpuNodes map[string]*v1alpha1.GPUNode) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, node := range gpuNodes {
		for i := range node.Status.Findings {
			switch f := &node.Status.Findings[i]; f.Reason {
			case v1alpha1.FindingShareExceeded, v1alpha1.FindingMemoryConflict:
				all[f.PodUID] = true
			case v1alpha1.FindingNotAllocated:
			}
		}
	}
	return all
}

// rootKey identifies the workload or the group of a pod.
func rootKey(pod *podcache.Pod) string {
	switch {
	case pod.PodGroup != "":
		return pod.Namespace + "/podgroup/" + pod.PodGroup
	case pod.Group != "":
		return pod.Namespace + "/group/" + pod.Group
	case pod.Controller.UID != "":
		return string(pod.Controller.UID)
	}
	return string(pod.UID)
}

// writtenReservation is the last reservation of a node that this process wrote; the cache may lag behind it.
type writtenReservation struct {
	reservation *preemption.Reservation
	at          time.Time
}

// cacheLag is the time for which a written reservation stands for the cached one.
const cacheLag = 10 * time.Second

// reservationOf returns the reservation of a node.
func (r *Reconciler) reservationOf(node string, gpuNode *v1alpha1.GPUNode, now time.Time) *preemption.Reservation {
	if written, ok := r.written[node]; ok && now.Sub(written.at) < cacheLag {
		return written.reservation
	}
	if reservation, ok := preemption.ParseReservation(gpuNode.Annotations[v1alpha1.PreemptionAnnotation]); ok {
		return &reservation
	}
	return nil
}

// applyPreemptions writes the reservations before it announces evictions, so that after a crash the victims are
// known. What it leaves undone, the next decision repeats.
func (r *Reconciler) applyPreemptions(ctx context.Context, s *observedState, d *decision, now time.Time) error {
	if r.Evictions == nil {
		return nil
	}
	p := &d.preemptions
	for node, reservation := range p.reserve {
		if err := r.writeReservation(ctx, s.gpuNodes[node], reservation); err != nil {
			return err
		}
		r.written[node] = writtenReservation{reservation, now}
	}
	var failed []error
	failed = append(failed, r.announce(ctx, p))
	for _, w := range p.withdraw {
		failed = append(failed, r.Evictions.Withdraw(ctx, w.announcement, w.why))
	}
	for i, node := range p.nominate {
		failed = append(failed, r.nominate(ctx, &s.requests[i], node))
	}
	r.explain(s, d)
	return errors.Join(failed...)
}

// announce announces the evictions. What is announced already, it repeats once in each process, which completes what
// a crash or an error interrupted.
func (r *Reconciler) announce(ctx context.Context, p *preemptionPlan) error {
	complete := map[types.UID]types.UID{}
	var failed []error
	for _, a := range p.confirm {
		if r.complete[a.UID] != a.Claimant {
			if err := r.Evictions.Announce(ctx, a); err != nil {
				failed = append(failed, err)
				continue
			}
		}
		complete[a.UID] = a.Claimant
	}
	for _, a := range p.announce {
		err := r.Evictions.Announce(ctx, a)
		failed = append(failed, err)
		if err == nil {
			complete[a.UID] = a.Claimant
		}
	}
	r.complete = complete
	return errors.Join(failed...)
}

// writeReservation writes or removes the reservation of a node.
func (r *Reconciler) writeReservation(ctx context.Context, gpuNode *v1alpha1.GPUNode, reservation *preemption.Reservation) error {
	if gpuNode == nil {
		return nil
	}
	var value any
	if reservation != nil {
		value = reservation.String()
	}
	err := r.patch(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name}}, map[string]any{
		"metadata": map[string]any{"uid": gpuNode.UID, "annotations": map[string]any{v1alpha1.PreemptionAnnotation: value}},
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the reservation of node %s: %w", gpuNode.Name, err)
	}
	return nil
}

// nominate writes status.nominatedNodeName of a pending pod. Kube-scheduler then takes the node's room into account
// for pods of equal and lower priority; other schedulers ignore it.
func (r *Reconciler) nominate(ctx context.Context, w *podRequest, node string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name}}
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"nominatedNodeName":%q}}`, w.uid, node)
	err := r.Client.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerPlanner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("nominate node %s for pod %s: %w", node, w.displayName(), err)
	}
	return nil
}

// Reasons of events on claimants.
const (
	eventPreemptionAnnounced  = "PreemptionAnnounced"
	eventPreemptionImpossible = "PreemptionImpossible"
)

// explain records events on the claimants, once for each message.
func (r *Reconciler) explain(s *observedState, d *decision) {
	maps.DeleteFunc(r.explained, func(uid types.UID, _ string) bool {
		for i := range s.requests {
			if s.requests[i].uid == uid {
				return false
			}
		}
		return true
	})
	for i, e := range d.preemptions.explain {
		w := &s.requests[i]
		if r.explained[w.uid] == e.message {
			continue
		}
		r.explained[w.uid] = e.message
		reason, kind := eventPreemptionImpossible, corev1.EventTypeWarning
		if e.chosen {
			reason, kind = eventPreemptionAnnounced, corev1.EventTypeNormal
		}
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid}
		r.Events.Eventf(pod, nil, kind, reason, "Preempt", "%s", e.message)
	}
}

// PodsByUID finds GPU pods: a podcache.Store.
type PodsByUID interface {
	ByUID(uid types.UID) (*podcache.Pod, bool)
}

// ClaimantCheck returns the check of the reason Preempted: an eviction is not necessary any more if the pod that
// needs the room is gone, has a node or belongs to a closed project, or if no room is reserved for it on the node of
// the victim. The GPUNode is read from the API server, since the cache may have a former reservation.
func ClaimantCheck(cached client.Client, live client.Reader, pods PodsByUID) eviction.Check {
	return func(ctx context.Context, a eviction.Announcement) (string, error) {
		claimant, known := pods.ByUID(a.Claimant)
		switch {
		case !known || claimant.Deleting:
			return "the pod that needed its room is gone", nil
		case claimant.IsBound():
			return "the pod that needed its room has a node", nil
		}
		project, err := inventory.ProjectForNamespace(ctx, cached, claimant.Namespace)
		if err != nil {
			return "", err
		}
		if project == nil || project.IsClosed() {
			return "the project of the pod that needed its room is closed", nil
		}
		victim, known := pods.ByUID(a.UID)
		if !known {
			return "", fmt.Errorf("pod %s is not in the cache", a.Pod)
		}
		node, err := inventory.GetGPUNode(ctx, live, victim.Node)
		if err != nil {
			return "", err
		}
		if node == nil || !isReservedFor(node, a.Claimant) {
			return "no room is reserved on its node any more for the pod that needed it", nil
		}
		log.FromContext(ctx).V(1).Info("Confirmed preemption", "claimant", claimant.Name, "pod", a.Pod.String())
		return "", nil
	}
}

func isReservedFor(node *v1alpha1.GPUNode, claimant types.UID) bool {
	reservation, ok := preemption.ParseReservation(node.Annotations[v1alpha1.PreemptionAnnotation])
	return ok && reservation.Claimant == claimant
}
