// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
)

// Result is what came of asking one policy.
type Result string

// The verdicts, the gravest last.
const (
	// ResultPassed: the policy had nothing to complain about.
	ResultPassed Result = "passed"
	// ResultWarned: it warned.
	ResultWarned Result = "warned"
	// ResultDenied: it refused, or would have, were it in force.
	ResultDenied Result = "denied"
	// ResultFailed: it erred, or gave a value of the wrong shape.
	ResultFailed Result = "failed"
	// ResultTimedOut: it passed its deadline, or the request's was over.
	ResultTimedOut Result = "timed-out"
)

// Evaluation is the asking of one policy.
type Evaluation struct {
	// Policy is the policy's name.
	Policy string
	// Enforcement is the policy's.
	Enforcement v1alpha1.Enforcement
	// Rendering tells that the policy was asked for objects, not about one.
	Rendering bool
	// TypeResolution tells that it was asked for the workload's type.
	TypeResolution bool
	// Cached tells that the answer was one that the policy gave before about an
	// object that is the same in all that the policy reads.
	Cached bool
	// Duration is how long it took.
	Duration time.Duration
	// Result is what came of it.
	Result Result
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

// DryRunOutcome is what policies in DryRun would have done.
type DryRunOutcome struct {
	// Changes are the changes.
	Changes []merge.DesiredChanges
	// Denials are the refusals, those of policies that failed included.
	Denials []merge.Finding
	// Warnings are the warnings.
	Warnings []merge.Finding
}

// Outcome is what all policies together make of one object. Its lists are sorted
// by the policies' names, and within a policy in the order of Rego's sets, so
// that the same question has the same answer but for the times it took. What it
// holds is remembered and given to others too: it must not be changed.
type Outcome struct {
	// Changes are what Deny and Warn policies want the object to be.
	Changes []merge.DesiredChanges
	// Denials are why it is refused; none means that it is not.
	Denials []merge.Finding
	// Warnings are for its author.
	Warnings []merge.Finding
	// DryRun is what DryRun policies would have done.
	DryRun DryRunOutcome
	// Failures are the policies that could not be asked. What that means for the
	// object is already in Denials and Warnings.
	Failures []Failure
	// Evaluations are all policies that were asked.
	Evaluations []Evaluation
}

// Evaluate asks every policy that matches about one object. A policy that cannot
// be asked is no error: it is in the Outcome, and refuses. An error means that
// the question was wrong; the object must then not be admitted either.
func (s *Set) Evaluate(ctx context.Context, in Input) (Outcome, error) {
	if in.object().IsAbsent() {
		return Outcome{}, ErrNoObject
	}
	if in.Now.IsZero() {
		return Outcome{}, ErrNoTime
	}
	matched := s.match(in.Subject, admissionRequest)
	if len(matched) == 0 {
		return Outcome{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	replies := s.evaluateAll(ctx, admissionRequest, matched, in.bind())
	var outcome Outcome
	for i, m := range matched {
		outcome.add(m.policy, &replies[i], in.Template)
	}
	s.observe(outcome.Evaluations)
	return outcome, nil
}

// evaluateAll returns each policy's reply to a question: remembered where it was asked the same before,
// else given now.
func (s *Set) evaluateAll(ctx context.Context, question requestKind, members []*member, b *boundInput) []response[policyResult] {
	replies := make([]response[policyResult], len(members))
	input := b.newKeyBuilder(s.segments)
	var (
		text  []byte
		open  []int
		keys  [][sha256.Size]byte
		asked []*policy
	)
	for i, m := range members {
		began := policytime.MachineNow()
		var key [sha256.Size]byte
		if m.segmentIndexes[question] != nil {
			text = input.appendKey(text[:0], m.segmentIndexes[question])
			key = sha256.Sum256(text)
			if given, hit := m.caches[question].Get(key); hit {
				replies[i] = response[policyResult]{value: given, duration: policytime.MachineNow().Sub(began), cached: true}
				continue
			}
		}
		keys = append(keys, key)
		open, asked = append(open, i), append(asked, m.policy)
	}
	given := evaluateInOrder(ctx, s.options.Limits.Evaluation, asked,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (policyResult, error) {
			return p.evaluate(ctx, question, b.withParameters(p.parameters), cancel)
		})
	for j, reply := range given {
		replies[open[j]] = reply
		if reply.err == nil && members[open[j]].segmentIndexes[question] != nil {
			asked[j].caches[question].Put(keys[j], reply.value, reply.value.size())
		}
	}
	return replies
}

func (s *Set) observe(evaluations []Evaluation) {
	if s.options.Observe == nil {
		return
	}
	for _, evaluation := range evaluations {
		s.options.Observe(evaluation)
	}
}

// add adds what one policy said.
func (o *Outcome) add(p *policy, reply *response[policyResult], template bool) {
	asked := Evaluation{Policy: p.source.Name, Enforcement: p.enforcement(), Duration: reply.duration, Cached: reply.cached}
	denials, warnings := reply.value.findings(p, template)
	if reply.err != nil {
		o.Failures = append(o.Failures, Failure{Policy: p.source.Name, Enforcement: p.enforcement(), Err: reply.err})
		denials = []merge.Finding{p.failureFinding(reply.err)}
	}
	asked.Result = resultOf(reply.err, denials, warnings)
	o.Evaluations = append(o.Evaluations, asked)

	switch p.enforcement() {
	case v1alpha1.EnforcementDryRun:
		o.DryRun.Denials = append(o.DryRun.Denials, denials...)
		o.DryRun.Warnings = append(o.DryRun.Warnings, warnings...)
		if reply.value.hasChanges() {
			o.DryRun.Changes = append(o.DryRun.Changes, reply.value.changes)
		}
		return
	case v1alpha1.EnforcementWarn:
		// A policy that was to change the object and could not must not be passed
		// over: without its changes the object may do what they prevent.
		if reply.err == nil || p.module.rules&mutatingRules == 0 {
			warnings = append(denials, warnings...)
			denials = nil
		}
	}
	o.Denials = append(o.Denials, denials...)
	o.Warnings = append(o.Warnings, warnings...)
	if reply.value.hasChanges() {
		o.Changes = append(o.Changes, reply.value.changes)
	}
}

// findings are what the policy refuses and what it warns of. On a template, a
// refusal that may be otherwise by the time of the pod is a warning.
func (a *policyResult) findings(p *policy, template bool) (denials, warnings []merge.Finding) {
	for _, rule := range []ruleName{ruleDeny, ruleViolation} {
		found := a.deny
		if rule == ruleViolation {
			found = a.violation
		}
		if template && p.module.volatile.has(rule) {
			warnings = append(warnings, found...)
		} else {
			denials = append(denials, found...)
		}
	}
	return denials, append(warnings, a.warn...)
}

// failureFinding is how a policy refuses that could not be asked.
func (p *policy) failureFinding(err error) merge.Finding {
	return merge.Finding{
		Policy:  p.source.Name,
		Message: singleLine(fmt.Sprintf("the policy %s could not be evaluated: %v", p.source.Name, err)),
		Fix:     "tell the cluster's administrators; until the policy is mended it refuses what it is asked about",
	}
}

func resultOf(err error, denials, warnings []merge.Finding) Result {
	switch {
	case errors.Is(err, ErrDeadline), errors.Is(err, ErrRequestDeadline), errors.Is(err, ErrBusy):
		return ResultTimedOut
	case err != nil:
		return ResultFailed
	case len(denials) > 0:
		return ResultDenied
	case len(warnings) > 0:
		return ResultWarned
	}
	return ResultPassed
}
