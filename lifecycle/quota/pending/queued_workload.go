// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// The schedulers that report why work waits, as messages name them.
const (
	schedulerKueue = "Kueue"
	schedulerKAI   = "KAI-Scheduler"
)

// QueuedWorkload is a workload in a queue of a scheduler: a Job, or the pods of one owner.
type QueuedWorkload struct {
	// Scheduler is schedulerKueue or schedulerKAI.
	Scheduler string
	// Owner is the owner of the Workload or PodGroup: a Job, a ReplicaSet or a bare pod.
	Owner corev1.ObjectReference
	// Root is the Deployment of a ReplicaSet, else the owner.
	Root corev1.ObjectReference
	// Queue is the name of the LocalQueue or Queue.
	Queue string
	// Pods is the number of queued pods, and Charge the GPU quota that they need in total.
	Pods   int32
	Charge workload.Milli
	// UncreatedCharge is the part of Charge for pods that do not exist yet.
	UncreatedCharge workload.Milli
	// Pool is the preferred node pool of all pods. It is empty if they differ.
	Pool string
	// Reason is why the oldest Workload of the owner is queued.
	Reason Reason
	// Since is when the workload was queued.
	Since time.Time
}

// eviction is a Workload that Kueue admitted and evicted.
type eviction struct {
	owner  corev1.ObjectReference
	uid    types.UID
	at     time.Time
	reason string
}

// queuedByOwner are queued workloads by the UID of their owner.
type queuedByOwner map[types.UID]*QueuedWorkload

// add adds a workload, or adds to that of the same owner, which has the reason of the oldest.
func (by queuedByOwner) add(w QueuedWorkload) {
	q := by[w.Owner.UID]
	if q == nil {
		w.Root = w.Owner
		by[w.Owner.UID] = &w
		return
	}
	if w.Since.Before(q.Since) {
		q.Since, q.Reason = w.Since, w.Reason
	}
	if q.Pool != w.Pool {
		q.Pool = ""
	}
	q.Pods = saturatingAdd(q.Pods, w.Pods)
	q.Charge = min(q.Charge+w.Charge, maxKueueCharge)
	q.UncreatedCharge = min(q.UncreatedCharge+w.UncreatedCharge, maxKueueCharge)
}

// sorted returns the workloads, the oldest first.
func (by queuedByOwner) sorted() []QueuedWorkload {
	queued := make([]QueuedWorkload, 0, len(by))
	for _, q := range by {
		queued = append(queued, *q)
	}
	slices.SortFunc(queued, compareQueued)
	return queued
}

func compareQueued(a, b QueuedWorkload) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner.Kind, b.Owner.Kind),
		cmp.Compare(a.Owner.Name, b.Owner.Name), cmp.Compare(a.Owner.UID, b.Owner.UID))
}

// ListQueued returns the queued Workloads by owner, the oldest first. pods returns a pod by its
// UID.
func ListQueued(all []kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) []QueuedWorkload {
	by := queuedByOwner{}
	for i := range all {
		w := &all[i]
		if !w.isPending() {
			continue
		}
		since, reason := w.pendingReason()
		q := QueuedWorkload{
			Scheduler: schedulerKueue, Owner: workloadOwner(w, pods), Queue: w.Spec.QueueName, Pool: w.pool,
			Pods: w.pods, Charge: w.charge, Reason: reason, Since: since,
		}
		if !w.isForPods() {
			q.UncreatedCharge = w.charge
		}
		by.add(q)
	}
	return by.sorted()
}

// listEvictions returns the Workloads that Kueue evicted and has not admitted again.
func listEvictions(all []kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) []eviction {
	var evictions []eviction
	for i := range all {
		w := &all[i]
		evicted := meta.FindStatusCondition(w.Status.Conditions, kueueEvicted)
		if evicted == nil || evicted.Status != metav1.ConditionTrue || w.hasCondition(kueueFinished) || w.Spec.Active != nil && !*w.Spec.Active {
			continue
		}
		e := eviction{owner: workloadOwner(w, pods), uid: w.UID, at: evicted.LastTransitionTime.Time}
		e.reason = ExplainEviction("", evicted.Message)
		if by := meta.FindStatusCondition(w.Status.Conditions, kueuePreempted); evicted.Reason == kueuePreempted && by != nil {
			e.reason = ExplainEviction(by.Reason, by.Message)
		}
		evictions = append(evictions, e)
	}
	return evictions
}

// isForPods reports whether the Workload represents existing pods. Their own requests are then
// counted.
func (w *kueueWorkload) isForPods() bool {
	return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == ownerKindPod && o.APIVersion == "v1" })
}

// pendingReason returns since when the Workload is queued, and why.
func (w *kueueWorkload) pendingReason() (time.Time, Reason) {
	reserved := meta.FindStatusCondition(w.Status.Conditions, kueueQuotaReserved)
	switch {
	case reserved == nil:
		return w.CreationTimestamp.Time, ExplainQueued("")
	case reserved.Status == metav1.ConditionTrue:
		const message = "its GPUs are reserved, but a Kueue admission check is not complete"
		return reserved.LastTransitionTime.Time, Reason{Code: codeAdmissionCheck, Summary: message, Details: message}
	default:
		return reserved.LastTransitionTime.Time, ExplainQueued(reserved.Message)
	}
}

// workloadOwner returns the owner of a Workload.
func workloadOwner(w *kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) corev1.ObjectReference {
	return ownerOf(w, kueueGroupVersion.WithKind("Workload"), pods)
}

// ownerOf returns the controller of an object, else its first owner, else the object. For a pod it
// returns the pod's controller.
func ownerOf(
	object metav1.Object, kind schema.GroupVersionKind, pods func(types.UID) (*podcache.Pod, bool),
) corev1.ObjectReference {
	owner := corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if owners := object.GetOwnerReferences(); ref == nil && len(owners) > 0 {
		ref = &owners[0]
	}
	if ref == nil {
		return owner
	}
	owner.APIVersion, owner.Kind, owner.Name, owner.UID = ref.APIVersion, ref.Kind, ref.Name, ref.UID
	if pod, known := pods(ref.UID); ref.Kind == ownerKindPod && known && pod.Controller.UID != "" {
		c := pod.Controller
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = c.APIVersion, c.Kind, c.Name, c.UID
	}
	return owner
}

// summarizeQueued returns the message of the condition. It does not change while the same
// workloads are queued for the same reasons.
func summarizeQueued(queued []QueuedWorkload) string {
	var total workload.Milli
	for i := range queued {
		total = min(total+queued[i].Charge, maxKueueCharge)
	}
	var names []string
	for i := range queued[:min(maxNamedWorkloads, len(queued))] {
		q := &queued[i]
		names = append(names, fmt.Sprintf("%s %s (%s, %s, since %s: %s)", quoteMessage(q.Root.Kind), quoteMessage(q.Root.Name),
			pluralize(q.Pods, "pod", "pods"), q.Charge.Describe(), q.Since.UTC().Format(time.RFC3339), q.Reason.Summary))
	}
	list := strings.Join(names, ", ")
	if more := len(queued) - maxNamedWorkloads; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s in the scheduler's queue, %s in total: %s; each starts automatically when %s",
		pluralize(int32(len(queued)), "workload waits", "workloads wait"), total.Describe(), list, startCondition(queued...))
}

// describeQueued returns the message of the event on a queued workload.
func describeQueued(q *QueuedWorkload, project, department string) string {
	return fmt.Sprintf("%s in queue %s of project %s (department %s), %s in total: %s; it starts automatically when %s",
		pluralize(q.Pods, "pod waits", "pods wait"), quoteMessage(q.Queue), project, department, q.Charge.Describe(), q.Reason.Details,
		startCondition(*q))
}

// startCondition returns when queued workloads start: "Kueue admits it".
func startCondition(queued ...QueuedWorkload) string {
	var when []string
	for _, scheduler := range []string{schedulerKueue, schedulerKAI} {
		if slices.ContainsFunc(queued, func(q QueuedWorkload) bool { return q.Scheduler == scheduler }) {
			when = append(when, scheduler)
		}
	}
	if len(when) == 1 && when[0] == schedulerKAI {
		return schedulerKAI + " schedules it"
	}
	return strings.Join(when, " or ") + " admits it"
}

func saturatingAdd(a, b int32) int32 { return int32(min(int64(a)+int64(b), 1<<31-1)) }
