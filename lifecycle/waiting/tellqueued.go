// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// Reasons of the events on what waits in a queue.
const (
	reasonQueued  = "WaitingInQueue"
	reasonEvicted = "EndedForOthers"
)

// maxQueued is how many of what waits in a project's queues are told, and named in
// the status, the oldest ones.
const maxQueued = 100

// tellings are what was told to whom, by the UID of the owner, or of the Workload
// that was evicted.
type tellings map[types.UID]telling

type telling struct {
	root corev1.ObjectReference
	// brief is the last reason, and said are all that were told while it waits: of
	// reasons that take turns each is told once.
	brief string
	said  []string
	// evicted is when it was ended last, as far as that was told.
	evicted time.Time
}

// overlap is how long before this process had the turn another may have told, in
// machine time.
const overlap = time.Minute

// tellQueued finds out by which name people know what waits, and tells its authors
// what is new. What was so before this process came was told by another.
func (r *Reconciler) tellQueued(ctx context.Context, project *v1alpha1.Project, queued []Queued, before, now tellings) error {
	for i := range queued[:min(len(queued), maxQueued)] {
		q := &queued[i]
		last, known := before[q.Owner.UID]
		if !known {
			root, err := r.rootOf(ctx, q.Owner)
			if err != nil {
				return err
			}
			last.root = root
		}
		q.Root = last.root
		if q.Why.Passing && last.brief != "" {
			q.Why.Brief = last.brief
		}
		last.brief = q.Why.Brief
		if !q.Why.Passing && !slices.Contains(last.said, q.Why.Brief) && len(last.said) < maxNamed {
			if known || q.Since.After(r.began.Add(-overlap)) {
				r.Events.Eventf(&q.Root, nil, corev1.EventTypeWarning, reasonQueued, "Wait", "%s", explainQueued(q, project.Name, project.Spec.Department))
			}
			last.said = append(slices.Clone(last.said), q.Why.Brief)
		}
		now[q.Owner.UID] = last
	}
	return nil
}

// tellEvicted tells the authors of what was ended for others.
func (r *Reconciler) tellEvicted(ctx context.Context, project *v1alpha1.Project, evictions []eviction, before, now tellings) error {
	for _, e := range evictions[:min(len(evictions), maxQueued)] {
		if e.at.After(r.began.Add(-overlap)) && e.at.After(before[e.uid].evicted) {
			root, err := r.rootOf(ctx, e.owner)
			if err != nil {
				return err
			}
			r.Events.Eventf(&root, nil, corev1.EventTypeWarning, reasonEvicted, "End",
				"it was ended %s; it waits in the queue of project %s and starts again by itself when there is room", e.why, project.Name)
		}
		next := now[e.uid]
		next.evicted = e.at
		now[e.uid] = next
	}
	return nil
}

// rootOf is what people know an owner by: of a ReplicaSet its Deployment.
func (r *Reconciler) rootOf(ctx context.Context, owner corev1.ObjectReference) (corev1.ObjectReference, error) {
	set := kinds["ReplicaSet"]
	if owner.Kind != set.Kind || owner.APIVersion != set.GroupVersion().String() {
		return owner, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(set.GroupVersionKind)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err) || err == nil && object.UID != owner.UID:
		return owner, nil
	case err != nil:
		return owner, fmt.Errorf("reading ReplicaSet %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	if by := metav1.GetControllerOf(object); by != nil {
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = by.APIVersion, by.Kind, by.Name, by.UID
	}
	return owner, nil
}
