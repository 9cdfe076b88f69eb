// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"testing"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// Protects invariant 11: each declared field without effect is named, and no other.
func TestUnsupportedFields(t *testing.T) {
	pool := func(compute v1alpha1.Compute) []tenancy.UnsupportedField {
		return tenancy.UnsupportedInNodePool(&v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Compute: compute}})
	}
	if got := pool(v1alpha1.ComputeFair); len(got) > 0 {
		t.Errorf("a fair node pool: %+v", got)
	}
	const want = "these fields have no effect yet: spec.compute: Strict (limits each pod to its share of a GPU's compute)"
	if got := tenancy.DescribeUnsupported(pool(v1alpha1.ComputeStrict)); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}
