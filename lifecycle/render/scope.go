// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scoped makes sure that a quota counts the pods that it is rendered for. Which
// those are cannot be changed once a quota is made, and what somebody had said
// of it before is not overwritten by applying: such a quota would look right and
// count nothing. It is deleted, and made anew when lifecycle hears of that.
//
// There is the object after it was applied; where that was refused, as it is.
func (a *Applier) scoped(ctx context.Context, wanted, there *unstructured.Unstructured) (fault, err error) {
	if wanted.GroupVersionKind() != quotaKind {
		return nil, nil
	}
	var want, have corev1.ResourceQuota
	for from, into := range map[*unstructured.Unstructured]*corev1.ResourceQuota{wanted: &want, there: &have} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, into); err != nil {
			return nil, fmt.Errorf("reading %s: %w", at(wanted), err)
		}
	}
	if equality.Semantic.DeepEqual(want.Spec.Scopes, have.Spec.Scopes) && equality.Semantic.DeepEqual(want.Spec.ScopeSelector, have.Spec.ScopeSelector) {
		return nil, nil
	}
	if err := a.Client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("deleting %s, which counts other pods than it should: %w", at(wanted), err)
	}
	return fmt.Errorf("%s counted other pods than it should, since somebody had made it before; it is made anew", at(wanted)), nil
}
