// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"

	"sluice.dev/manifests"
)

// What is written into a pool's status must pass the schema of that status, or
// no status of the pool is written at all.
func TestProfilePatternMatchesSchema(t *testing.T) {
	crd, err := manifests.Files.ReadFile("crds/sluice.dev_nodepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(crd), profilePattern.String()) {
		t.Errorf("the schema of NodePool does not know %s", profilePattern)
	}
}
