// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

const (
	// cacheLag is the time for which a policy waits for a library that does not exist: it may have been created a moment ago.
	cacheLag         = 1 * time.Second
	cacheLagInterval = 100 * time.Millisecond
	// maxNamedImporters limits the policies that a refused deletion names.
	maxNamedImporters = 10
)

// ValidateDelete implements admission.Validator. A library that policies import cannot be deleted.
func (v *Validator) ValidateDelete(ctx context.Context, policy *v1alpha1.Policy) (admission.Warnings, error) {
	if policy.Spec.Type != v1alpha1.PolicyTypeLibrary {
		return nil, nil
	}
	var existing v1alpha1.PolicyList
	if err := v.Cached.List(ctx, &existing, client.UnsafeDisableDeepCopy); err != nil {
		// The webhook fails open; this answer has the same effect, and names the reason.
		return admission.Warnings{fmt.Sprintf("the policies that import the library were not looked up: %v", err)}, nil
	}
	remaining := slices.DeleteFunc(slices.Clone(existing.Items), func(p v1alpha1.Policy) bool { return !p.DeletionTimestamp.IsZero() })
	importers := engine.Importers(engine.FromPolicy(policy), store.Sources(policies.BuiltIn(), remaining))
	if len(importers) == 0 {
		return nil, nil
	}
	names := strings.Join(importers[:min(len(importers), maxNamedImporters)], ", ")
	if more := len(importers) - maxNamedImporters; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("policies").GroupResource(), policy.Name,
		fmt.Errorf("the library is imported by %s: change or delete these first", names))
}

// awaitLibraries waits a moment if the policy refers to libraries that the cache does not have.
func (v *Validator) awaitLibraries(ctx context.Context, source engine.Source) {
	ctx, cancel := context.WithTimeout(ctx, cacheLag)
	defer cancel()
	for {
		var existing v1alpha1.PolicyList
		err := v.Cached.List(ctx, &existing, client.UnsafeDisableDeepCopy)
		if err != nil || !engine.LacksLibrary(source, store.Sources(nil, existing.Items)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(cacheLagInterval): //nolint:forbidigo // machine time: the interval of attempts
		}
	}
}
