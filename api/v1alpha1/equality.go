// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"sluice.dev/api/period"
)

// equality.Semantic panics on a struct with unexported fields that it was not
// told how to compare, and controllers compare whole specs and statuses with it.
func init() {
	if err := equality.Semantic.AddFuncs(
		period.Duration.Equal,
		period.Period.Equal,
		period.Date.Equal,
	); err != nil {
		panic(err) // the three have the signature that AddFuncs wants
	}
}
