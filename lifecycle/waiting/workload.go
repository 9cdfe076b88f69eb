// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Workload is one that waits.
type Workload struct {
	Refused
	// Root is what people know it by: the Deployment of a ReplicaSet, or the object
	// itself.
	Root corev1.ObjectReference
	// Pods is how many are missing, more than 0.
	Pods int32
	// Since is when it began to wait.
	Since time.Time
	// Woken is when it was woken last; zero where it never was.
	Woken time.Time
}

// Pending is what the missing pods would be charged.
func (w *Workload) Pending() workload.Milli { return workload.Milli(w.Pods) * w.Share }

// settled is how long after a refusal the object's own status has it, too.
const settled = 10 * time.Second

// Look is the workload as its object says it waits; false where it does not.
func Look(refused Refused, object client.Object, now time.Time) (Workload, bool) {
	w := Workload{Refused: refused, Since: refused.First, Root: rootOf(refused, object)}
	if object.GetUID() != refused.UID || !object.GetDeletionTimestamp().IsZero() {
		return w, false
	}
	if w.Pods = kinds[refused.Kind].missing(object); w.Pods == 0 {
		return w, false
	}
	if since, says, known := failing(object); says {
		w.Since = since
	} else if known && now.Sub(refused.Last) > settled {
		return w, false
	}
	// What cannot be read or lies ahead was not written here.
	if woken, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[v1alpha1.AnnotationWokenAt]); err == nil && !woken.After(now) {
		w.Woken = woken
	}
	return w, true
}

// rootOf is the object's controller, but for a CronJob, whose Jobs are known by
// their own names.
func rootOf(refused Refused, object client.Object) corev1.ObjectReference {
	root := corev1.ObjectReference{
		APIVersion: kinds[refused.Kind].GroupVersion().String(), Kind: refused.Kind,
		Namespace: refused.Namespace, Name: refused.Name, UID: refused.UID,
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind != "CronJob" {
		root.APIVersion, root.Kind, root.Name, root.UID = owner.APIVersion, owner.Kind, owner.Name, owner.UID
	}
	return root
}

// olderFirst orders by who waits longest.
func olderFirst(a, b Workload) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Root.Kind, b.Root.Kind),
		cmp.Compare(a.Root.Name, b.Root.Name), cmp.Compare(a.Name, b.Name))
}

// known is what is remembered of those that wait, so that an event which the API
// server forgot makes nobody younger, and nobody is told twice.
type known map[types.UID]time.Time
