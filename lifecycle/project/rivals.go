// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// outbid refuses the project where another that came first names the same
// namespace. Admission refuses the second of two that come one after the other;
// two at the same instant both pass it, and meet here.
func (r *Reconciler) outbid(ctx context.Context, project *v1alpha1.Project) (*tenancy.Refusal, error) {
	var rivals v1alpha1.ProjectList
	if err := r.Client.List(ctx, &rivals, client.MatchingFields{inventory.ProjectsByNamespace: project.NamespaceName()}); err != nil {
		return nil, fmt.Errorf("listing the projects of namespace %s: %w", project.NamespaceName(), err)
	}
	for i := range rivals.Items {
		if rival := &rivals.Items[i]; rival.UID != project.UID && comesFirst(rival, project) {
			return tenancy.Taken(project.NamespaceName(), rival.Name), nil
		}
	}
	return nil, nil
}

// comesFirst orders two projects that name one namespace: who has it keeps it,
// else the older, else the one whose name sorts first.
func comesFirst(a, b *v1alpha1.Project) bool {
	if hasA, hasB := a.Status.Namespace != nil, b.Status.Namespace != nil; hasA != hasB {
		return hasA
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(a.Name, b.Name) < 0
}
