// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// ReasonRefusingVolumeClaims: the quota does not refuse new volume claims yet.
const ReasonRefusingVolumeClaims = "RefusingVolumeClaims"

// claimsSettleTime is the time, in machine time, after which every API server has observed a quota that
// is counted, and has stored the claims that it admitted before.
const claimsSettleTime = 2 * time.Second

// claimsRefused remembers since when new volume claims of projects are refused, in machine time. The
// zero value is empty. It is safe for concurrent use.
type claimsRefused struct{ since sync.Map }

// isSettled records whether the claims of a project are refused, and reports whether they have been for
// claimsSettleTime.
func (c *claimsRefused) isSettled(project types.UID, refused bool, now time.Time) bool {
	if !refused {
		c.forget(project)
		return false
	}
	since, _ := c.since.LoadOrStore(project, now)
	at, ok := since.(time.Time)
	return ok && now.Sub(at) >= claimsSettleTime
}

func (c *claimsRefused) forget(project types.UID) { c.since.Delete(project) }

// quotaKind is the kind of the quota. The API server adds no defaults to it.
var quotaKind = apply.Kind{
	GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ResourceQuota"), Namespaced: true, NoDefaults: true,
	New:     func() client.Object { return &corev1.ResourceQuota{} },
	NewList: func() client.ObjectList { return &corev1.ResourceQuotaList{} },
	Content: func(object client.Object) any { return object.(*corev1.ResourceQuota).Spec },
}

// refuseVolumeClaims limits volume claims to none in the quota of the project, so that none is created
// between their count and the deletion of the namespace. Existing claims and all other limits stay. It
// returns what it waits for, or nil once every API server refuses new claims.
func (r *Reconciler) refuseVolumeClaims(ctx context.Context, project *v1alpha1.Project, namespace string) (*problem, error) {
	labels := apply.ManagedLabels()
	labels[v1alpha1.LabelProject] = project.Name
	hard := corev1.ResourceList{}
	if existing, err := apply.GetQuota(ctx, r.Live, apply.ProjectTarget(project)); err != nil {
		return nil, err
	} else if existing != nil {
		maps.Copy(hard, existing.Spec.Hard)
	}
	hard[corev1.ResourcePersistentVolumeClaims] = resource.Quantity{}
	quota, err := apply.ToUnstructured(&corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: quotaKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.QuotaName, Labels: labels},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	})
	if err != nil {
		return nil, err
	}
	set := apply.Set{
		Owner: "the deletion of project " + project.Name, Labels: labels, Kinds: []apply.Kind{quotaKind}, Namespace: namespace,
	}
	applier := apply.Applier{Client: r.Client, Live: r.Live}
	applied, err := applier.ApplySet(ctx, set, []*unstructured.Unstructured{quota})
	if err != nil {
		return nil, err
	}
	if failures := apply.JoinFailures(applied.Failures, func(apply.Failure) bool { return true }); failures != "" {
		return &problem{ReasonObjectsRefused, "new volume claims cannot be refused: " + failures}, nil
	}
	if !r.claimsRefused.isSettled(project.UID, apply.IsCounted(applied.Quota), policytime.MachineNow()) {
		return &problem{ReasonRefusingVolumeClaims, fmt.Sprintf(
			"waiting until quota %s refuses new volume claims in namespace %s, so that none is lost", v1alpha1.QuotaName, namespace)}, nil
	}
	return nil, nil
}

// listVolumeClaims lists from the API server: a claim that a cache does not have yet would be deleted
// with the namespace.
func (r *Reconciler) listVolumeClaims(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := r.Live.List(ctx, claims, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the volume claims in namespace %s: %w", namespace, err)
	}
	return claims.Items, nil
}
