// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

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
	"sluice.dev/lifecycle/gpupods"
)

// Queued is what waits in a queue of Kueue's: a Job, or the pods of one maker.
type Queued struct {
	// Owner is what is known of it in the cluster: a Job, a ReplicaSet, a bare pod.
	Owner corev1.ObjectReference
	// Root is what people know it by: the Deployment of a ReplicaSet, or the Owner.
	Root corev1.ObjectReference
	// Queue is the name of the LocalQueue.
	Queue string
	// Pods is how many wait, Share what they are charged in all.
	Pods  int32
	Share workload.Milli
	// Unmade is how much of that is of pods that are not made yet.
	Unmade workload.Milli
	// Pool is the node pool that all of them ask for first; empty where they differ.
	Pool string
	// Why is why; of several the one that waits longest tells.
	Why Why
	// Since is when it began to wait.
	Since time.Time
}

// eviction is what Kueue had let in and ended.
type eviction struct {
	owner corev1.ObjectReference
	uid   types.UID
	at    time.Time
	why   string
}

// InQueue are the Workloads among these that wait, by who made them, oldest first.
// pods finds a pod by its UID.
func InQueue(all []kueueWorkload, pods func(types.UID) (*gpupods.Pod, bool)) []Queued {
	by := map[types.UID]*Queued{}
	for i := range all {
		w := &all[i]
		if !w.waits() {
			continue
		}
		owner := ownerOf(w, pods)
		since, why := w.why()
		q := by[owner.UID]
		if q == nil {
			q = &Queued{Owner: owner, Root: owner, Queue: w.Spec.QueueName, Pool: w.pool, Why: why, Since: since}
			by[owner.UID] = q
		}
		if since.Before(q.Since) {
			q.Since, q.Why = since, why
		}
		if q.Pool != w.pool {
			q.Pool = ""
		}
		q.Pods = plus(q.Pods, w.pods)
		q.Share = min(q.Share+w.share, maxKueueShare)
		if !w.ofPods() {
			q.Unmade = min(q.Unmade+w.share, maxKueueShare)
		}
	}
	queued := make([]Queued, 0, len(by))
	for _, q := range by {
		queued = append(queued, *q)
	}
	slices.SortFunc(queued, func(a, b Queued) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner.Kind, b.Owner.Kind), cmp.Compare(a.Owner.Name, b.Owner.Name), cmp.Compare(a.Owner.UID, b.Owner.UID))
	})
	return queued
}

// evicted are those that Kueue ended and has not let in again.
func evicted(all []kueueWorkload, pods func(types.UID) (*gpupods.Pod, bool)) []eviction {
	var evictions []eviction
	for i := range all {
		w := &all[i]
		gone := meta.FindStatusCondition(w.Status.Conditions, kueueEvicted)
		if gone == nil || gone.Status != metav1.ConditionTrue || w.is(kueueFinished) || w.Spec.Active != nil && !*w.Spec.Active {
			continue
		}
		e := eviction{owner: ownerOf(w, pods), uid: w.UID, at: gone.LastTransitionTime.Time, why: WhyEvicted("", gone.Message)}
		if by := meta.FindStatusCondition(w.Status.Conditions, kueuePreempted); gone.Reason == kueuePreempted && by != nil {
			e.why = WhyEvicted(by.Reason, by.Message)
		}
		evictions = append(evictions, e)
	}
	return evictions
}

// ofPods tells whether it stands for pods that there are: what these are charged is
// known from themselves.
func (w *kueueWorkload) ofPods() bool {
	return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == ownerKindPod && o.APIVersion == "v1" })
}

// why is since when it waits, and why.
func (w *kueueWorkload) why() (time.Time, Why) {
	reserved := meta.FindStatusCondition(w.Status.Conditions, kueueReserved)
	switch {
	case reserved == nil:
		return w.CreationTimestamp.Time, WhyQueued("")
	case reserved.Status == metav1.ConditionTrue:
		const checks = "its GPUs are reserved, and an admission check of Kueue's is not done"
		return reserved.LastTransitionTime.Time, Why{Brief: checks, Full: checks}
	default:
		return reserved.LastTransitionTime.Time, WhyQueued(reserved.Message)
	}
}

// ownerOf is whose a Workload is: its controller, or the first of several; of a pod
// what controls that.
func ownerOf(w *kueueWorkload, pods func(types.UID) (*gpupods.Pod, bool)) corev1.ObjectReference {
	owner := corev1.ObjectReference{
		APIVersion: kueueWorkloads.String(), Kind: "Workload", Namespace: w.Namespace, Name: w.Name, UID: w.UID,
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

// summaryOfQueued is the message of the condition. It has nothing that changes while
// everybody waits on.
func summaryOfQueued(queued []Queued) string {
	var total workload.Milli
	for i := range queued {
		total = min(total+queued[i].Share, maxKueueShare)
	}
	var names []string
	for i := range queued[:min(maxNamed, len(queued))] {
		q := &queued[i]
		names = append(names, fmt.Sprintf("%s %s (%s, %s, since %s: %s)", said(q.Root.Kind), said(q.Root.Name),
			count(q.Pods, "pod", "pods"), q.Share.InWords(), q.Since.UTC().Format(time.RFC3339), q.Why.Brief))
	}
	list := strings.Join(names, ", ")
	if more := len(queued) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s in the queue of the scheduler, %s in all: %s; each starts by itself when it is its turn",
		count(int32(len(queued)), "workload waits", "workloads wait"), total.InWords(), list)
}

// explainQueued says to its author why it waits.
func explainQueued(q *Queued, project, department string) string {
	return fmt.Sprintf("%s in queue %s of project %s (department %s), %s in all: %s; it starts by itself when it is its turn",
		count(q.Pods, "pod waits", "pods wait"), said(q.Queue), project, department, q.Share.InWords(), q.Why.Full)
}

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), 1<<31-1)) }
