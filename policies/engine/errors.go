// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import "errors"

// Why a policy could not be asked.
var (
	// ErrDeadline: the policy took longer than an evaluation may.
	ErrDeadline = errors.New("it took longer than it may")
	// ErrRequestDeadline: the request's time was over before the policy was
	// through, or even asked.
	ErrRequestDeadline = errors.New("the request's time was over")
	// ErrBusy: an earlier evaluation of the policy is stuck in a built-in function
	// that cannot be stopped, and has not come back yet.
	ErrBusy = errors.New("an earlier evaluation has not come back")
	// ErrShape: a rule gave a value that is not what the rule is.
	ErrShape = errors.New("a value of the wrong shape")
)

// ErrNotLoaded means that no policies were loaded yet. Whoever asks must not admit.
var ErrNotLoaded = errors.New("no policies are loaded yet")
