// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Reasons of the condition Ready of a project whose namespace stays when it is deleted.
const (
	// ReasonClaimOwned: a volume claim would be deleted with an object that the deletion removes.
	ReasonClaimOwned = "VolumeClaimOwned"
	// ReasonDeletingWorkloads: a workload cannot be deleted.
	ReasonDeletingWorkloads = "DeletingWorkloads"
)

// Stopper stops workloads: a suspend.Stopper.
type Stopper interface {
	Stop(ctx context.Context, t suspend.Target, until time.Time, message string) error
}

// planRemoval plans what the deletion of the project removes of a namespace that stays. It returns what the
// deletion waits for if a volume claim would be lost.
func (r *Reconciler) planRemoval(ctx context.Context, project *v1alpha1.Project, namespace string) (removal, *problem, error) {
	var objects []metav1.PartialObjectMetadata
	for _, kind := range workloadkind.All() {
		listed, err := r.listMetadata(ctx, kind.GroupKind, namespace)
		if err != nil {
			return removal{}, nil, err
		}
		objects = append(objects, listed...)
	}
	var sets appsv1.StatefulSetList
	if err := r.Live.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return removal{}, nil, fmt.Errorf("list the StatefulSets in namespace %s: %w", namespace, err)
	}
	// An owner that is added to a claim afterwards is not in the plan: the claims come last.
	claims, err := r.listVolumeClaims(ctx, namespace)
	if err != nil {
		return removal{}, nil, err
	}
	for i := range claims {
		for _, owner := range claims[i].OwnerReferences {
			if isRemovedWithProject(owner) {
				return removal{}, &problem{ReasonClaimOwned, fmt.Sprintf(
					"volume claim %[2]s would be deleted with its owner, %[3]s %[4]s: to keep it, run kubectl patch pvc %[2]s -n %[1]s "+
						`--type=merge -p '{"metadata":{"ownerReferences":null}}'`, namespace, claims[i].Name, owner.Kind, owner.Name)}, nil
			}
		}
	}
	since := tenancy.MembersSince(project)
	plan := newRemoval(since, objects, sets.Items, claims)
	accounts, err := r.listMetadata(ctx, schema.GroupKind{Kind: "ServiceAccount"}, namespace)
	plan.accounts = slices.DeleteFunc(accounts, func(account metav1.PartialObjectMetadata) bool {
		return account.CreationTimestamp.Before(&since) || plan.ownsClaim[account.UID]
	})
	return plan, nil, err
}

// isRemovedWithProject reports whether the owner of a volume claim is the Project, or of a kind of which
// objects are rendered for it.
func isRemovedWithProject(owner metav1.OwnerReference) bool {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	if _, isWorkload := workloadkind.Lookup(kind); isWorkload {
		return false
	}
	switch kind.Group {
	case v1alpha1.Group, workloadkind.GroupKueue, "scheduling.run.ai", "kai.resources", "networking.k8s.io":
		return true
	case corev1.GroupName:
		return kind.Kind == "ResourceQuota" || kind.Kind == "LimitRange"
	}
	return false
}

// listMetadata lists the objects of a kind in the namespace; none if the kind is not installed.
func (r *Reconciler) listMetadata(ctx context.Context, kind schema.GroupKind, namespace string) ([]metav1.PartialObjectMetadata, error) {
	mapping, err := r.Client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up resource of %s: %w", kind, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
	err = r.Live.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list each %s in namespace %s: %w", kind.Kind, namespace, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(mapping.GroupVersionKind)
	}
	return list.Items, nil
}

// removeWorkloads deletes and stops workloads as planned, and then deletes the ServiceAccounts. It returns
// what it waits for, or nil.
func (r *Reconciler) removeWorkloads(ctx context.Context, project *v1alpha1.Project, plan removal, namespace string) (*problem, error) {
	var errs []error
	for _, object := range plan.stopped {
		target := suspend.Target{GroupVersionKind: object.GroupVersionKind(), Namespace: namespace, Name: object.Name, UID: object.UID}
		err := r.Stopper.Stop(ctx, target, time.Time{}, fmt.Sprintf("project %s was deleted", project.Name))
		if !errors.Is(err, suspend.ErrGone) && !errors.Is(err, suspend.ErrUnsupported) {
			errs = append(errs, err)
		}
	}
	for _, object := range plan.deleted {
		errs = append(errs, r.deleteUnchanged(ctx, object))
	}
	if waits := refusedRemoval(namespace, errs); waits != nil {
		return waits, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range plan.accounts {
		errs = append(errs, r.deleteUnchanged(ctx, &plan.accounts[i]))
	}
	return nil, errors.Join(errs...)
}

// deleteUnchanged deletes an object and all that it owns, unless it changed.
func (r *Reconciler) deleteUnchanged(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := r.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s in namespace %s: %w", object.Kind, object.Name, object.Namespace, err)
	}
	return nil
}

// refusedRemoval returns what the deletion waits for if the API server, or an admission webhook, refuses
// part of it.
func refusedRemoval(namespace string, errs []error) *problem {
	for _, err := range errs {
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err) {
			return &problem{ReasonDeletingWorkloads, fmt.Sprintf("namespace %s stays, and its workloads go: %v", namespace, err)}
		}
	}
	return nil
}
