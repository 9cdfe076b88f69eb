// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"testing"

	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
)

// The cluster is ready only when all admission policies are in force.
func TestProbesLastAdmissionPolicy(t *testing.T) {
	policies, err := admissionpolicy.LoadPolicies(manifests.Files, true)
	if err != nil {
		t.Fatal(err)
	}
	if last := policies[len(policies)-1].GetName(); last != lastAdmissionPolicy {
		t.Errorf("lifecycle applies %s last, and the probe is of %s", last, lastAdmissionPolicy)
	}
}
