// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// claimName is the name of a new volume claim. Others may have named it before there was the claim: a StatefulSet makes its claims when
// it is scaled up, and a pod or a clone waits on after the claim for which it was admitted is deleted.
type claimName struct {
	creators        *CreatorResolver
	namespace, name string
	// creator is the user for whom the claim is created.
	creator string
	// set is the name of the StatefulSet that will make the claim; empty for a claim that is created now.
	set string
}

var ordinalSuffix = regexp.MustCompile(`-[0-9]+$`)

// problem says whose the name is already; empty if it is free. With a private claim, nothing of others may wait for the name: it would
// mount or clone the claim.
func (c claimName) problem(ctx context.Context, scans *evaluation.Slots, private bool) (string, error) {
	sets, err := c.statefulSets(ctx)
	if err != nil {
		return "", err
	}
	for _, set := range sets {
		if set.Name == c.set {
			continue
		}
		if other, err := c.otherCreator(ctx, set); other != "" || err != nil {
			return fmt.Sprintf("StatefulSet %s of %s makes its own volume claim %s, and its pod would use this one; choose another name",
				set.Name, other, c.name), err
		}
	}
	if !private {
		return "", nil
	}
	release, err := scans.Acquire(ctx, c.namespace)
	if err != nil {
		return "", err
	}
	defer release()
	waiting, err := c.waiting(ctx)
	if err != nil {
		return "", err
	}
	for _, object := range waiting {
		if other, err := c.otherCreator(ctx, object); other != "" || err != nil {
			return fmt.Sprintf("%s %s of %s waits for volume claim %s, and would get its content; delete it, choose another name, "+
				"or share the claim with the label %s=true", object.Kind, object.Name, other, c.name, v1alpha1.SharedClaimLabel), err
		}
	}
	return "", nil
}

// otherCreator returns whose an object is; empty if it is the claim's creator's.
func (c claimName) otherCreator(ctx context.Context, object *metav1.PartialObjectMetadata) (string, error) {
	creator, err := object.Annotations[v1alpha1.AnnotationCreatedBy], error(nil)
	if object.Kind != claimKind.Kind { // at a claim, ClaimMutator records the workload's creator
		creator, err = c.creators.Of(ctx, object)
	}
	switch {
	case errors.Is(err, errUnknownCreator) && c.creator != "":
		return describeCreator(""), nil
	case errors.Is(err, errUnknownCreator):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find the creator of %s %s: %w", object.Kind, object.Name, err)
	case creator == c.creator:
		return "", nil
	default:
		return describeCreator(creator), nil
	}
}

// statefulSets returns the metadata of the StatefulSets that have a claim template for the name.
func (c claimName) statefulSets(ctx context.Context) (sets []*metav1.PartialObjectMetadata, err error) {
	prefix := ordinalSuffix.ReplaceAllString(c.name, "")
	for i := range prefix {
		if prefix[i] != '-' || prefix == c.name {
			continue
		}
		var set appsv1.StatefulSet
		err := c.creators.Live.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: prefix[i+1:]}, &set)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get StatefulSet %s: %w", prefix[i+1:], err)
		}
		if isClaimOf(&set, c.name) {
			sets = append(sets, metadataOf(set.ObjectMeta, appsv1.SchemeGroupVersion.WithKind(statefulSet.Kind)))
		}
	}
	return sets, nil
}

// scanPage is the number of objects in one answer of the API server. Pods and claims of a hostile author have half a mebibyte.
const scanPage = 20

// waiting returns the metadata of the pods that mount a claim of the name and have not ended, and of the claims without a volume that clone
// it. A pod with a node keeps its claim, unless the finalizer of the claim was removed.
func (c claimName) waiting(ctx context.Context) (waiting []*metav1.PartialObjectMetadata, err error) {
	var pods corev1.PodList
	err = c.eachPage(ctx, &pods, func() {
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
				slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
					return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == c.name
				}) {
				waiting = append(waiting, metadataOf(pod.ObjectMeta, corev1.SchemeGroupVersion.WithKind("Pod")))
			}
		}
	})
	var claims corev1.PersistentVolumeClaimList
	return waiting, errors.Join(err, c.eachPage(ctx, &claims, func() {
		for i := range claims.Items {
			claim := &claims.Items[i]
			if claim.Spec.VolumeName == "" && slices.ContainsFunc(clonedClaims(claim), func(r claimReference) bool { return r.name == c.name }) {
				waiting = append(waiting, metadataOf(claim.ObjectMeta, claimKind))
			}
		}
	}))
}

// eachPage calls visit for each page of the objects of the namespace.
func (c claimName) eachPage(ctx context.Context, list client.ObjectList, visit func()) error {
	for {
		page := []client.ListOption{client.InNamespace(c.namespace), client.Limit(scanPage), client.Continue(list.GetContinue())}
		if err := c.creators.Live.List(ctx, list, page...); err != nil {
			return fmt.Errorf("list what waits for volume claims: %w", err)
		}
		visit()
		if list.GetContinue() == "" {
			return nil
		}
	}
}

func metadataOf(object metav1.ObjectMeta, kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: object}
	metadata.SetGroupVersionKind(kind)
	return metadata
}
