// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/intent"
)

// Verdict is what came of asking one policy.
type Verdict string

// The verdicts, the gravest last.
const (
	// VerdictPassed: the policy had nothing to complain about.
	VerdictPassed Verdict = "passed"
	// VerdictWarned: it warned.
	VerdictWarned Verdict = "warned"
	// VerdictDenied: it refused, or would have, were it in force.
	VerdictDenied Verdict = "denied"
	// VerdictFailed: it erred, or gave a value of the wrong shape.
	VerdictFailed Verdict = "failed"
	// VerdictTimedOut: it passed its deadline, or the request's was over.
	VerdictTimedOut Verdict = "timed-out"
)

// Evaluation is the asking of one policy.
type Evaluation struct {
	// Policy is the policy's name.
	Policy string
	// Enforcement is the policy's.
	Enforcement v1alpha1.Enforcement
	// Rendering tells that the policy was asked for objects, not about one.
	Rendering bool
	// Typing tells that it was asked for the workload's type.
	Typing bool
	// Recalled tells that the answer was one that the policy gave before about an
	// object that is the same in all that the policy reads.
	Recalled bool
	// Took is how long it took.
	Took time.Duration
	// Verdict is what came of it.
	Verdict Verdict
}

// Failure is a policy that could not be asked.
type Failure struct {
	// Policy is the policy's name.
	Policy string
	// Enforcement is the policy's.
	Enforcement v1alpha1.Enforcement
	// Err is why: [ErrDeadline], [ErrRequestDeadline], [ErrBusy], [ErrShape], a
	// [Problem] with the place in the policy, or another error of the evaluation.
	Err error
}

// Trial is what policies in DryRun would have done.
type Trial struct {
	// Intents are the changes.
	Intents []intent.Intent
	// Denials are the refusals, those of policies that failed included.
	Denials []intent.Complaint
	// Warnings are the warnings.
	Warnings []intent.Complaint
}

// Outcome is what all policies together make of one object. Its lists are sorted
// by the policies' names, and within a policy in the order of Rego's sets, so
// that the same question has the same answer but for the times it took. What it
// holds is remembered and given to others too: it must not be changed.
type Outcome struct {
	// Intents are what Deny and Warn policies want the object to be.
	Intents []intent.Intent
	// Denials are why it is refused; none means that it is not.
	Denials []intent.Complaint
	// Warnings are for its author.
	Warnings []intent.Complaint
	// DryRun is what DryRun policies would have done.
	DryRun Trial
	// Failures are the policies that could not be asked. What that means for the
	// object is already in Denials and Warnings.
	Failures []Failure
	// Evaluations are all policies that were asked.
	Evaluations []Evaluation
}
