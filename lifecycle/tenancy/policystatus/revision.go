// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

// reconcileRevision keeps the present source of a policy in the cluster once it is in force, and
// then deletes earlier ones. A mirror without parameters needs none.
func (r *Reconciler) reconcileRevision(ctx context.Context, object *v1alpha1.Policy) error {
	report, ok := r.Reports.Report(object.Name)
	if !ok || report.Generation != object.Generation || !report.Active || len(report.Problems) > 0 {
		return nil // what is kept stays
	}
	var libraries []engine.Source
	if set, err := r.Policies.Current(); err == nil {
		if version, ok := set.Version(object.Name); ok && version.Generation != object.Generation {
			return nil // the report on this version will enqueue the policy
		}
		libraries = set.Imports(object.Name)
	}
	desired, err := store.NewRevision(object, libraries...)
	if err != nil {
		return err
	}
	var revisions appsv1.ControllerRevisionList
	err = r.Client.List(ctx, &revisions, client.InNamespace(desired.Namespace), client.MatchingLabels(desired.Labels), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the revisions of policies: %w", err)
	}
	needed := !isMirror(object) || object.Spec.Parameters != nil
	var obsolete []*appsv1.ControllerRevision
	for i := range revisions.Items {
		revision := &revisions.Items[i]
		if !store.IsRevisionOf(revision, object) {
			continue
		}
		if _, err := store.RevisionSource(revision, object); err == nil && needed && revision.Name == desired.Name {
			desired = nil
			continue
		}
		obsolete = append(obsolete, revision)
	}
	if needed && desired != nil {
		// One that cannot be used may have this name. The event of its deletion starts another pass.
		if err := r.Client.Create(ctx, desired); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("keep generation %d of policy %s: %w", object.Generation, object.Name, err)
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Kept version of policy", "policy", object.Name, "generation", object.Generation)
	}
	for _, revision := range obsolete {
		if err := r.Client.Delete(ctx, revision, client.Preconditions{UID: &revision.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete revision %s of policy %s: %w", revision.Name, object.Name, err)
		}
	}
	return nil
}
