// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"sluice.dev/api/v1alpha1"
)

// change is what somebody does to an Extension's status.
type change int

const (
	// nothing: it stays as it is.
	nothing change = iota
	// decision: an open one is approved or refused.
	decision
	// undecided: something is written, and no decision.
	undecided
	// more: there is a decision, and what is Sluice's to write besides.
	more
	// settled: it was decided before.
	settled
)

// changeOf tells what is done, by the statuses before and after. Who decided, and
// when, is part of the decision.
func changeOf(before, after *v1alpha1.ExtensionStatus) change {
	switch {
	case equality.Semantic.DeepEqual(before, after):
		return nothing
	case before.Decision != "":
		return settled
	case after.Decision == "":
		return undecided
	}
	decided := before.DeepCopy()
	decided.Decision, decided.Message = after.Decision, after.Message
	decided.DecidedBy, decided.DecidedAt = after.DecidedBy, after.DecidedAt
	if equality.Semantic.DeepEqual(decided, after) {
		return decision
	}
	return more
}
