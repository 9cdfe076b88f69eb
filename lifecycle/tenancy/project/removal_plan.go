// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/notification/mail"
)

// removal is what the deletion of a project removes of a namespace that stays, and what it leaves. What is
// older than the project is in none of the lists.
type removal struct {
	// deleted are workloads that are deleted, with their pods.
	deleted []*metav1.PartialObjectMetadata
	// stopped are workloads that are only stopped: volume claims would be deleted with them, or their
	// operator does something unknown when they are deleted, as their finalizer shows.
	stopped []*metav1.PartialObjectMetadata
	// left run on: volume claims would be deleted with their pods, or they belong to an object that Sluice
	// does not delete.
	left []*metav1.PartialObjectMetadata
	// accounts are the ServiceAccounts that are deleted, and with them every token of the namespace's programs.
	accounts []metav1.PartialObjectMetadata
	// ownsClaim has the objects with which a volume claim would be deleted.
	ownsClaim map[types.UID]bool
}

// countKinds returns the number of objects of each kind.
func countKinds(objects ...*metav1.PartialObjectMetadata) (counts []mail.Count) {
	byKind := map[string]int{}
	for _, object := range objects {
		byKind[object.Kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		counts = append(counts, mail.Count{Kind: kind, N: byKind[kind]})
	}
	return counts
}

// describe returns what stays of the workloads and why, or "".
func (p *removal) describe() string {
	var parts []string
	for _, group := range []struct {
		objects []*metav1.PartialObjectMetadata
		why     string
	}{
		{p.stopped, "stopped and not deleted, since volume claims or unknown data would be deleted with them"},
		{p.left, "running on, since volume claims would be deleted with their pods, or they belong to an object that Sluice does not delete"},
	} {
		var names []string
		for _, object := range group.objects {
			names = append(names, object.Kind+" "+object.Name)
		}
		if slices.Sort(names); len(names) > 0 {
			parts = append(parts, joinNames(names)+" ("+group.why+")")
		}
	}
	return strings.Join(parts, "; ")
}

// newRemoval plans the removal of the workloads in a namespace. objects are all of the known kinds, with the
// metadata alone; claims are its volume claims.
func newRemoval(
	since metav1.Time, objects []metav1.PartialObjectMetadata, sets []appsv1.StatefulSet, claims []metav1.PartialObjectMetadata,
) removal {
	byUID := make(map[types.UID]*metav1.PartialObjectMetadata, len(objects))
	for i := range objects {
		byUID[objects[i].UID] = &objects[i]
	}
	o := claimOwners{byUID: byUID, owns: map[types.UID]bool{}, byPod: map[types.UID]bool{}}
	for i := range claims {
		o.add(claims[i].OwnerReferences, false)
	}
	for i := range sets {
		policy := sets[i].Spec.PersistentVolumeClaimRetentionPolicy
		if policy != nil && policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
			// Its claims get their owner after they are created.
			o.add([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", UID: sets[i].UID}}, false)
		}
	}
	plan := removal{ownsClaim: o.owns}
	for i := range objects {
		object := &objects[i]
		kind, _ := workloadkind.Lookup(object.GroupVersionKind().GroupKind())
		switch {
		case object.CreationTimestamp.Before(&since), object.DeletionTimestamp != nil, kind.StopAction.Method == workloadkind.StopNever:
		case o.isPart(object, &since):
		case o.byPod[object.UID], hasUnknownController(object):
			plan.left = append(plan.left, object)
		case o.unknown, o.owns[object.UID], len(object.Finalizers) > 0:
			plan.stopped = append(plan.stopped, object)
		default:
			plan.deleted = append(plan.deleted, object)
		}
	}
	return plan
}

// claimOwners are the objects with which Kubernetes would delete volume claims.
type claimOwners struct {
	byUID map[types.UID]*metav1.PartialObjectMetadata
	owns  map[types.UID]bool
	// byPod are those whose pods own claims, which would be deleted with the pods: generic ephemeral volumes.
	byPod map[types.UID]bool
	// unknown reports that a claim has an owner that was not listed, which could belong to any object.
	unknown bool
}

// add adds the owners of a claim, and theirs.
func (o *claimOwners) add(owners []metav1.OwnerReference, throughPod bool) {
	for _, owner := range owners {
		object := o.byUID[owner.UID]
		if object == nil {
			o.owns[owner.UID] = true
			o.unknown = o.unknown || !isListed(owner)
			continue
		}
		byPod := throughPod || object.Kind == "Pod"
		if o.owns[owner.UID] && (o.byPod[owner.UID] || !byPod) {
			continue
		}
		o.owns[owner.UID], o.byPod[owner.UID] = true, byPod
		o.add(object.OwnerReferences, byPod)
	}
}

// isPart reports whether an object belongs to another, and stays or goes with it. Any user can write a reference that
// names no controller, and so belong to an object that stays. What a user deletes and holds with a finalizer runs on by its
// parts, and the Jobs of a CronJob run on when it is only stopped.
func (o *claimOwners) isPart(object *metav1.PartialObjectMetadata, since *metav1.Time) bool {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return false
	}
	owner := o.byUID[controller.UID]
	switch {
	case owner == nil:
		return isListed(*controller) // it is gone, and so the object goes
	case owner.CreationTimestamp.Before(since):
		return true
	}
	return owner.DeletionTimestamp == nil && owner.Kind != "CronJob"
}

// hasUnknownController reports whether an object belongs to one of a kind that was not listed.
func hasUnknownController(object *metav1.PartialObjectMetadata) bool {
	controller := metav1.GetControllerOfNoCopy(object)
	return controller != nil && !isListed(*controller)
}

// isListed reports whether all objects of the owner's kind were listed, so that one that was not found is
// gone.
func isListed(owner metav1.OwnerReference) bool {
	_, known := workloadkind.Lookup(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
	return known
}
