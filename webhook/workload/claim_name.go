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
)

// The name of a new volume claim may be another's before there is the claim: a StatefulSet makes its claims when it is scaled up, and a
// pod or a clone waits on after the claim for which it was admitted is deleted.

var ordinalSuffix = regexp.MustCompile(`-[0-9]+$`)

// nameOfSet says which StatefulSet of another user than the creator makes a claim of the name, except ownSet; empty if none does.
func (r *ClaimReader) nameOfSet(ctx context.Context, namespace, name, creator, ownSet string) (string, error) {
	sets, err := r.statefulSets(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	for _, set := range sets {
		if set.Name == ownSet {
			continue
		}
		if other, err := r.otherCreator(ctx, set, creator); other != "" || err != nil {
			return fmt.Sprintf("StatefulSet %s of %s makes its own volume claim %s, and its pod would use this one; choose another name",
				set.Name, other, name), err
		}
	}
	return "", nil
}

// statefulSets returns the metadata of the StatefulSets that have a claim template for a name.
func (r *ClaimReader) statefulSets(ctx context.Context, namespace, name string) (sets []*metav1.PartialObjectMetadata, err error) {
	prefix := ordinalSuffix.ReplaceAllString(name, "")
	for i := range prefix {
		if prefix[i] != '-' || prefix == name {
			continue
		}
		var set appsv1.StatefulSet
		err := r.Creators.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: prefix[i+1:]}, &set)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get StatefulSet %s: %w", prefix[i+1:], err)
		}
		if isClaimOf(&set, name) {
			sets = append(sets, metadataOf(set.ObjectMeta, appsv1.SchemeGroupVersion.WithKind(statefulSet.Kind)))
		}
	}
	return sets, nil
}

// waiting says which object of another user than the creator waits for a claim of the name; empty if none does. These are the pods that
// mount it and have not ended, and the claims without a volume that clone it. A pod with a node keeps its claim, unless the finalizer of
// the claim was removed.
func (r *ClaimReader) waiting(ctx context.Context, namespace, name, creator string) (finding string, err error) {
	describe := func(object metav1.ObjectMeta, kind schema.GroupVersionKind) error {
		other, err := r.otherCreator(ctx, metadataOf(object, kind), creator)
		if other != "" {
			finding = fmt.Sprintf("%s %s of %s waits for volume claim %s, and would get its content; delete it, choose another name, "+
				"or share the claim with the label %s=true", kind.Kind, object.Name, other, name, v1alpha1.SharedClaimLabel)
		}
		return err
	}
	var pods corev1.PodList
	if err := r.eachPage(ctx, namespace, &pods, func() (done bool, err error) {
		for i := 0; i < len(pods.Items) && finding == "" && err == nil; i++ {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
				slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
					return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == name
				}) {
				err = describe(pod.ObjectMeta, corev1.SchemeGroupVersion.WithKind("Pod"))
			}
		}
		return finding != "", err
	}); err != nil || finding != "" {
		return finding, err
	}
	var claims corev1.PersistentVolumeClaimList
	return finding, r.eachPage(ctx, namespace, &claims, func() (done bool, err error) {
		for i := 0; i < len(claims.Items) && finding == "" && err == nil; i++ {
			claim := &claims.Items[i]
			clones := func(source claimReference) bool { return source.name == name }
			if claim.Spec.VolumeName == "" && slices.ContainsFunc(clonedClaims(claim), clones) {
				err = describe(claim.ObjectMeta, claimKind)
			}
		}
		return finding != "", err
	})
}

// otherCreator returns whose an object is; empty if it is the creator's.
func (r *ClaimReader) otherCreator(ctx context.Context, object *metav1.PartialObjectMetadata, creator string) (string, error) {
	owner, err := object.Annotations[v1alpha1.AnnotationCreatedBy], error(nil)
	if object.Kind != claimKind.Kind { // at a claim, ClaimMutator records the workload's creator
		owner, err = r.Creators.Of(ctx, object)
	}
	if errors.Is(err, errUnknownCreator) {
		owner, err = "", nil
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("find the creator of %s %s: %w", object.Kind, object.Name, err)
	case owner == creator:
		return "", nil
	default:
		return describeCreator(owner), nil
	}
}

// scanPage is the number of objects in one answer of the API server. Those of a hostile author have a quarter of a mebibyte and more.
const scanPage = 20

// eachPage calls visit for each page of the objects of a namespace until it is done.
func (r *ClaimReader) eachPage(ctx context.Context, namespace string, list client.ObjectList, visit func() (done bool, err error)) error {
	for {
		page := []client.ListOption{client.InNamespace(namespace), client.Limit(scanPage), client.Continue(list.GetContinue())}
		if err := r.Creators.Live.List(ctx, list, page...); err != nil {
			return fmt.Errorf("list what waits for volume claims: %w", err)
		}
		if done, err := visit(); done || err != nil || list.GetContinue() == "" {
			return err
		}
	}
}

func metadataOf(object metav1.ObjectMeta, kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: object}
	metadata.SetGroupVersionKind(kind)
	return metadata
}
