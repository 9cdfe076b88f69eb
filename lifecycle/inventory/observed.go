// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Observed is what the agent on the node reports; nil where there is no report.
func Observed(ctx context.Context, reader client.Reader, node string) (*v1alpha1.GPUNode, error) {
	var observed v1alpha1.GPUNode
	err := reader.Get(ctx, types.NamespacedName{Name: node}, &observed)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading GPUNode %s: %w", node, err)
	}
	return &observed, nil
}
