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
	pool := func(sharing v1alpha1.Sharing) []tenancy.UnsupportedField {
		return tenancy.UnsupportedInNodePool(&v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Sharing: sharing, Compute: v1alpha1.ComputeStrict}})
	}
	if got := pool(v1alpha1.SharingMPS); len(got) > 0 {
		t.Errorf("a strict node pool with MPS: %+v", got)
	}
	const want = "these fields have no effect yet: spec.sharing: HAMi (gives pods shares of a GPU by HAMi's virtual GPUs)"
	if got := tenancy.DescribeUnsupported(pool(v1alpha1.SharingHAMi)); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}
