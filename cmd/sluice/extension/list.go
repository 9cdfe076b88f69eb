// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// List reads the Extensions of a namespace, or of all where it is empty, the
// oldest first: those that wait for a decision, and with decided the others too.
func List(ctx context.Context, c client.Reader, namespace string, decided bool) ([]Row, error) {
	var list v1alpha1.ExtensionList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		hint := ""
		if apierrors.IsForbidden(err) && namespace == "" {
			hint = "; name a namespace with -n"
		}
		return nil, fmt.Errorf("reading extensions: %w%s", err, hint)
	}
	rows := []Row{}
	for i := range list.Items {
		if decided || list.Items[i].Status.Decision == "" {
			rows = append(rows, RowOf(&list.Items[i]))
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(a.AskedAt.Compare(b.AskedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
}
