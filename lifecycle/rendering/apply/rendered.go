// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Apply applies what policies render for a target and prunes what they no longer
// render. It prunes nothing while there is a failure, or while a quota is not
// counted, so that the limit holds all the time.
func (a *Applier) Apply(ctx context.Context, target Target, desired Desired) (Result, error) {
	set := target.set()
	if err := a.retainUnits(ctx, target, desired.Objects); err != nil {
		return Result{}, err
	}
	result, err := a.ApplySet(ctx, set, desired.Objects)
	if err != nil {
		return Result{}, err
	}
	result.Failures = slices.Concat(desired.Failures, result.Failures)
	if len(result.Failures) > 0 {
		if result.Quota == nil && target.Namespace != "" {
			result.Quota, err = GetQuota(ctx, a.Client, target)
		}
		return result, err
	}
	if !IsCounted(result.Quota) {
		return result, nil
	}
	return result, a.Prune(ctx, set, result)
}

// Remove deletes everything that was rendered for the target; for a target without a
// namespace the cluster-scoped objects.
func (a *Applier) Remove(ctx context.Context, target Target) error {
	return a.RemoveSet(ctx, target.set())
}

// RemoveOrphans deletes what is left of a subject that is gone, for example because a
// user removed its finalizer. The subject is an empty object of its kind.
func (a *Applier) RemoveOrphans(ctx context.Context, target Target, subject client.Object) error {
	set := target.set()
	existing, err := a.listExisting(ctx, set)
	if err != nil || len(existing) == 0 {
		return err
	}
	// The cache may not have a subject yet that was created just now.
	err = a.Live.Get(ctx, client.ObjectKey{Name: target.Name}, subject)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return a.Prune(ctx, set, Result{obsolete: existing})
}

// set returns the set of the target's objects.
func (t Target) set() Set {
	set := Set{
		Owner: t.String(), Labels: t.labels(), Namespace: t.Namespace, NewNamespace: t.NewNamespace, target: t,
		Conflict: func(existing *metav1.PartialObjectMetadata) error { return ownershipConflict(existing, t) },
		// A label that a user changed makes nothing the subject's.
		MayDelete: func(existing *metav1.PartialObjectMetadata) bool {
			named := existing.Namespace != "" || t.allowsName(existing.Name)
			return named && conflictingSubject(t, existing) == "" && isAppliedByLifecycle(existing)
		},
	}
	for _, kind := range supportedKinds {
		if slices.Contains(kind.subjects, t.Kind) && (t.Namespace != "" || !kind.Namespaced) {
			set.Kinds = append(set.Kinds, kind.Kind)
		}
	}
	return set
}

// ownershipConflict returns why an existing object may not be taken over for the
// target; nil if it is the subject's already, or its owner handed it over.
func ownershipConflict(existing *metav1.PartialObjectMetadata, target Target) error {
	if existing.Annotations[v1alpha1.AnnotationAdoptBy] == target.Name {
		return nil
	}
	handOver := fmt.Sprintf("kubectl annotate %s %s %s=%s", kubectlResource(existing), existing.Name, v1alpha1.AnnotationAdoptBy, target.Name)
	if existing.Namespace != "" {
		handOver += " --namespace " + existing.Namespace
	}
	if other := conflictingSubject(target, existing); other != "" {
		return fmt.Errorf("%s belongs to %s; give one of the two another name, or hand it over with: %s", describeObject(existing), other,
			handOver)
	}
	// One that lifecycle applied stays lifecycle's when its label is removed.
	if existing.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || isAppliedByLifecycle(existing) {
		return nil
	}
	return fmt.Errorf("%s exists and is not Sluice's; rename or delete it, or hand it over with: %s", describeObject(existing), handOver)
}

// conflictingSubject returns the other subject that the object's labels name, or "".
// A label counts only if that subject can have the object, by its name or since the
// namespace is the project's; else a user changed it.
func conflictingSubject(target Target, existing *metav1.PartialObjectMetadata) string {
	for _, kind := range subjectKinds {
		name := existing.Labels[kind.Label()]
		if name == "" || kind == target.Kind && name == target.Name {
			continue
		}
		other := ClusterTarget(kind, name)
		if theirs := existing.Namespace == "" && other.allowsName(existing.Name); theirs || !isAppliedByLifecycle(existing) {
			return other.String()
		}
	}
	return ""
}

// kubectlResource returns the kind of an object as kubectl accepts it.
func kubectlResource(existing *metav1.PartialObjectMetadata) string {
	gvk := existing.GroupVersionKind()
	name := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		name += "." + gvk.Group
	}
	return name
}
