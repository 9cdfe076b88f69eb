// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Refusal is a pod that did not fit into a quota.
type Refusal struct {
	// Quota is the name of the ResourceQuota.
	Quota string
	// Currency is what it counts: sluice.dev/gpu-milli.dgx.
	Currency corev1.ResourceName
	// Share is what the pod is charged, more than 0.
	Share workload.Milli
}

// Pool is the node pool that alone has the currency; empty where several share it.
func (r Refusal) Pool() string {
	pool, _ := strings.CutPrefix(string(r.Currency), string(v1alpha1.ResourceGPUMilli))
	return strings.TrimPrefix(pool, ".")
}

// ParseRefusal reads what the API server's quota admission answers, as a
// controller repeats it:
//
//	... exceeded quota: Q, requested: requests.C=500, used: ..., limited: ...
//
// It is false where no currency of GPUs was exceeded.
func ParseRefusal(message string) (Refusal, bool) {
	_, answer, found := strings.Cut(message, "exceeded quota: ")
	quota, answer, named := strings.Cut(answer, ", requested: ")
	requested, _, complete := strings.Cut(answer, ", used: ")
	if !found || !named || !complete {
		return Refusal{}, false
	}
	for entry := range strings.SplitSeq(requested, ",") {
		name, amount, _ := strings.Cut(entry, "=")
		currency, ok := strings.CutPrefix(name, corev1.DefaultResourceRequestsPrefix)
		if !ok || !isCurrency(currency) {
			continue
		}
		if share, err := resource.ParseQuantity(amount); err == nil && share.Value() > 0 {
			return Refusal{Quota: quota, Currency: corev1.ResourceName(currency), Share: workload.Milli(share.Value())}, true
		}
	}
	return Refusal{}, false
}

func isCurrency(name string) bool {
	return name == string(v1alpha1.ResourceGPUMilli) || strings.HasPrefix(name, string(v1alpha1.ResourceGPUMilli)+".")
}
