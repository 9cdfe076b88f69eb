// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction announces the eviction of running pods, and evicts them at the announced time.
//
// Other packages decide which pod must go and why. They call [Announcer.Announce], which writes the
// deadline, the reason and the claimant as annotations on the pod, records a Notice to the pod's
// creator and an event; and [Announcer.Withdraw] when the reason ends. The [Reconciler] evicts what
// is announced: from the deadline on through the Eviction API, which respects disruption budgets,
// and after a further budget period by deletion with the condition DisruptionTarget.
//
// The state is on the pod alone, so a restart continues. At most two pods of a node are evicted
// within a minute. The package chooses no pod, and announces none outside of projects.
package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Announcement says which pod is to be evicted, and why.
type Announcement struct {
	Pod types.NamespacedName
	// UID excludes another pod with the same name.
	UID types.UID
	// Reason is ShareExceeded, Preempted or QuotaReclaimed.
	Reason v1alpha1.EndReason
	// Claimant is the UID of the pod that gets the room; empty for ShareExceeded.
	Claimant types.UID
	// Message says why in one sentence without a full stop, for the events. It is not on the pod, and so it is
	// empty in an announcement that was read from a pod.
	Message string
	// Inputs holds inputs of the Notice besides project, department, type, gpus, nodePool and cause.
	Inputs map[string]string
}

// same reports whether b announces the same pod for the same reason and claimant.
func (a *Announcement) same(b *Announcement) bool {
	return a.UID == b.UID && a.Reason == b.Reason && a.Claimant == b.Claimant
}

// AnnouncedPod is a pod with an announcement.
type AnnouncedPod struct {
	Announcement
	// Node is the node of the pod.
	Node string
	// At is the announced time of the eviction, in machine time.
	At time.Time
}

// AnnouncedPods are the pods of the cluster with an announcement: a projection of the pod cache by [Parse], which
// all that read announcements share.
type AnnouncedPods interface {
	// Values returns the pods as the cache shows them, in no order. They are shared.
	Values() []*AnnouncedPod
	// OnChange adds a function to call after a change of them. It must not block.
	OnChange(call func())
}

// Parse returns the announcement on a pod, and false if it has none that can be read, is not bound to a
// node, or terminates already: such a pod is not evicted.
func Parse(pod *corev1.Pod) (*AnnouncedPod, bool) {
	if pod.Annotations[v1alpha1.AnnotationPreemptAt] == "" || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || workload.IsPodTerminal(pod) {
		return nil, false
	}
	at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.AnnotationPreemptAt])
	if err != nil || pod.Labels[v1alpha1.LabelProject] == "" {
		return nil, false
	}
	p := &AnnouncedPod{
		Announcement: Announcement{
			Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
			Reason:   v1alpha1.EndReason(pod.Annotations[v1alpha1.AnnotationPreemptReason]),
			Claimant: types.UID(pod.Annotations[v1alpha1.AnnotationPreemptFor]),
		},
		Node: pod.Spec.NodeName, At: at,
	}
	switch p.Reason {
	case v1alpha1.EndShareExceeded:
		p.Claimant = ""
	case v1alpha1.EndPreempted, v1alpha1.EndQuotaReclaimed:
		if p.Claimant == "" {
			return nil, false
		}
	default:
		return nil, false
	}
	return p, true
}

// annotations returns the annotations of the announcement.
func (p *AnnouncedPod) annotations() map[string]any {
	values := map[string]any{
		v1alpha1.AnnotationPreemptAt:     p.At.UTC().Format(time.RFC3339),
		v1alpha1.AnnotationPreemptReason: string(p.Reason),
		v1alpha1.AnnotationPreemptFor:    nil,
	}
	if p.Claimant != "" {
		values[v1alpha1.AnnotationPreemptFor] = string(p.Claimant)
	}
	return values
}

// noAnnotations removes the annotations.
func noAnnotations() map[string]any {
	return map[string]any{
		v1alpha1.AnnotationPreemptAt: nil, v1alpha1.AnnotationPreemptReason: nil, v1alpha1.AnnotationPreemptFor: nil,
	}
}

// reference returns the pod for events.
func (a *Announcement) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: a.Pod.Namespace, Name: a.Pod.Name, UID: a.UID}
}

func (a *Announcement) object() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Pod.Namespace, Name: a.Pod.Name, UID: a.UID}}
}
