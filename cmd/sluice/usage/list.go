// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// page is how many records are asked for at once: most are of other months.
const page = 500

// List reads the records of a month, of all departments and projects or of those
// that are named.
func List(ctx context.Context, c client.Reader, month, department, project string) ([]v1alpha1.UsageRecord, error) {
	var found []v1alpha1.UsageRecord
	add := func(record *v1alpha1.UsageRecord) {
		if record.Spec.Month == month && (department == "" || record.Status.Department == department) {
			found = append(found, *record)
		}
	}
	if project != "" {
		var record v1alpha1.UsageRecord
		err := c.Get(ctx, types.NamespacedName{Name: project + "-" + month}, &record)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, failed(err)
		}
		add(&record)
		return found, nil
	}
	list := v1alpha1.UsageRecordList{}
	for {
		if err := c.List(ctx, &list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return nil, failed(err)
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
		if list.Continue == "" {
			return found, nil
		}
	}
}

func failed(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("reading usage records, which are for administrators: %w", err)
	}
	return fmt.Errorf("reading usage records: %w", err)
}
