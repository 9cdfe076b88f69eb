// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Uncounted are the names of the quotas that the quota controller has not
// counted as they are now. A quota refuses nothing that goes beyond it before
// that: admission compares with the status.
func Uncounted(quotas []corev1.ResourceQuota) []string {
	var names []string
	for i := range quotas {
		if !equality.Semantic.DeepEqual(quotas[i].Spec.Hard, quotas[i].Status.Hard) {
			names = append(names, quotas[i].Name)
		}
	}
	return names
}

// Limit is what the quotas hold somebody to in a currency, whatever the pods,
// and what is used of it; false where no quota is counted that does. Where
// there are several the tightest one holds.
func Limit(quotas []corev1.ResourceQuota, currency corev1.ResourceName) (hard, used int64, found bool) {
	name := corev1.DefaultResourceRequestsPrefix + currency
	for i := range quotas {
		quota := &quotas[i]
		limit, ok := quota.Status.Hard[name]
		if !ok || len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			continue
		}
		if value := limit.Value(); !found || value < hard {
			now := quota.Status.Used[name]
			hard, used, found = value, now.Value(), true
		}
	}
	return hard, used, found
}
