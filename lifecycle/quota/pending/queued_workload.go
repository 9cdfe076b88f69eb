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
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// QueuedWorkload is what waits in a queue of Kueue's: a Job, or the pods of one maker.
type QueuedWorkload struct {
	// Owner is what is known of it in the cluster: a Job, a ReplicaSet, a bare pod.
	Owner corev1.ObjectReference
	// Root is what people know it by: the Deployment of a ReplicaSet, or the Owner.
	Root corev1.ObjectReference
	// Queue is the name of the LocalQueue.
	Queue string
	// Pods is how many wait, Share what they are charged in all.
	Pods   int32
	Charge workload.Milli
	// UncreatedCharge is how much of that is of pods that are not made yet.
	UncreatedCharge workload.Milli
	// Pool is the node pool that all of them ask for first; empty where they differ.
	Pool string
	// Reason is why; of several the one that waits longest tells.
	Reason PendingReason
	// Since is when it began to wait.
	Since time.Time
}

// eviction is what Kueue had let in and ended.
type eviction struct {
	owner  corev1.ObjectReference
	uid    types.UID
	at     time.Time
	reason string
}

// ListQueued are the Workloads among these that wait, by who made them, oldest first.
// pods finds a pod by its UID.
func ListQueued(all []kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) []QueuedWorkload {
	by := map[types.UID]*QueuedWorkload{}
	for i := range all {
		w := &all[i]
		if !w.isPending() {
			continue
		}
		owner := workloadOwner(w, pods)
		since, why := w.pendingReason()
		q := by[owner.UID]
		if q == nil {
			q = &QueuedWorkload{Owner: owner, Root: owner, Queue: w.Spec.QueueName, Pool: w.pool, Reason: why, Since: since}
			by[owner.UID] = q
		}
		if since.Before(q.Since) {
			q.Since, q.Reason = since, why
		}
		if q.Pool != w.pool {
			q.Pool = ""
		}
		q.Pods = saturatingAdd(q.Pods, w.pods)
		q.Charge = min(q.Charge+w.charge, maxKueueCharge)
		if !w.isForPods() {
			q.UncreatedCharge = min(q.UncreatedCharge+w.charge, maxKueueCharge)
		}
	}
	queued := make([]QueuedWorkload, 0, len(by))
	for _, q := range by {
		queued = append(queued, *q)
	}
	slices.SortFunc(queued, func(a, b QueuedWorkload) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner.Kind, b.Owner.Kind), cmp.Compare(a.Owner.Name, b.Owner.Name), cmp.Compare(a.Owner.UID, b.Owner.UID))
	})
	return queued
}

// listEvictions are those that Kueue ended and has not let in again.
func listEvictions(all []kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) []eviction {
	var evictions []eviction
	for i := range all {
		w := &all[i]
		gone := meta.FindStatusCondition(w.Status.Conditions, kueueEvicted)
		if gone == nil || gone.Status != metav1.ConditionTrue || w.hasCondition(kueueFinished) || w.Spec.Active != nil && !*w.Spec.Active {
			continue
		}
		e := eviction{owner: workloadOwner(w, pods), uid: w.UID, at: gone.LastTransitionTime.Time, reason: ExplainEviction("", gone.Message)}
		if by := meta.FindStatusCondition(w.Status.Conditions, kueuePreempted); gone.Reason == kueuePreempted && by != nil {
			e.reason = ExplainEviction(by.Reason, by.Message)
		}
		evictions = append(evictions, e)
	}
	return evictions
}

// isForPods tells whether it stands for pods that there are: what these are charged is
// known from themselves.
func (w *kueueWorkload) isForPods() bool {
	return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == ownerKindPod && o.APIVersion == "v1" })
}

// pendingReason is since when it waits, and why.
func (w *kueueWorkload) pendingReason() (time.Time, PendingReason) {
	reserved := meta.FindStatusCondition(w.Status.Conditions, kueueQuotaReserved)
	switch {
	case reserved == nil:
		return w.CreationTimestamp.Time, ExplainQueued("")
	case reserved.Status == metav1.ConditionTrue:
		const checks = "its GPUs are reserved, and an admission check of Kueue's is not done"
		return reserved.LastTransitionTime.Time, PendingReason{Summary: checks, Details: checks}
	default:
		return reserved.LastTransitionTime.Time, ExplainQueued(reserved.Message)
	}
}

// workloadOwner is whose a Workload is: its controller, or the first of several; of a pod
// what controls that.
func workloadOwner(w *kueueWorkload, pods func(types.UID) (*podcache.Pod, bool)) corev1.ObjectReference {
	owner := corev1.ObjectReference{
		APIVersion: kueueGroupVersion.String(), Kind: "Workload", Namespace: w.Namespace, Name: w.Name, UID: w.UID,
	}
	ref := metav1.GetControllerOfNoCopy(w)
	if ref == nil && len(w.OwnerReferences) > 0 {
		ref = &w.OwnerReferences[0]
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

// summarizeQueued is the message of the condition. It has nothing that changes while
// everybody waits on.
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
	return fmt.Sprintf("%s in the queue of the scheduler, %s in all: %s; each starts by itself when it is its turn",
		pluralize(int32(len(queued)), "workload waits", "workloads wait"), total.Describe(), list)
}

// describeQueued says to its author why it waits.
func describeQueued(q *QueuedWorkload, project, department string) string {
	return fmt.Sprintf("%s in queue %s of project %s (department %s), %s in all: %s; it starts by itself when it is its turn",
		pluralize(q.Pods, "pod waits", "pods wait"), quoteMessage(q.Queue), project, department, q.Charge.Describe(), q.Reason.Details)
}

func saturatingAdd(a, b int32) int32 { return int32(min(int64(a)+int64(b), 1<<31-1)) }
