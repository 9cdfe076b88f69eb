// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// Resources are the most CPU and memory that pods may request at once, as
// quantities: "64", "512Gi". What is not limited is left out; nothing else of what
// policies are told ever is.
type Resources struct {
	// CPU is in cores, Memory in bytes.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

func resourcesOf(quota v1alpha1.ResourceQuota) Resources {
	return Resources{CPU: quantity(quota.CPU), Memory: quantity(quota.Memory)}
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}
