// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"sluice.dev/policies/convert"
)

// Five policies of our own decide as Run:ai's documentation says: the cases beside them are written by hand.
func TestRunAIPolicies(t *testing.T) {
	compareWithCases(t, "testdata/runai", convert.RunAI)
}
