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

// Result is the result of evaluating one policy.
type Result string

// The results, by increasing severity.
const (
	// ResultPassed: the policy had no findings.
	ResultPassed Result = "passed"
	// ResultWarned: it warned.
	ResultWarned Result = "warned"
	// ResultDenied: it denied, or would have without DryRun.
	ResultDenied Result = "denied"
	// ResultFailed: it returned an error, or a value of the wrong type.
	ResultFailed Result = "failed"
	// ResultTimedOut: it exceeded its time limit, or the request's deadline passed.
	ResultTimedOut Result = "timed-out"
)

// Evaluation reports the evaluation of one policy.
type Evaluation struct {
	Policy      string
	Enforcement v1alpha1.Enforcement
	// Rendering: the policy rendered objects.
	Rendering bool
	// TypeResolution: the policy determined the workload's type.
	TypeResolution bool
	// Cached: the result came from the cache, since all that the policy reads was equal.
	Cached bool
	// Duration is the time it took.
	Duration time.Duration
	Result   Result
}

// Failure is a policy that could not be evaluated.
type Failure struct {
	Policy      string
	Enforcement v1alpha1.Enforcement
	// Err is [ErrDeadline], [ErrRequestDeadline], [ErrBusy], [ErrShape], a [Problem] with
	// its place in the policy, or another error of the evaluation.
	Err error
}

// DryRunOutcome is what DryRun policies would have done.
type DryRunOutcome struct {
	Changes []merge.DesiredChanges
	// Denials include those of policies that failed.
	Denials  []merge.Finding
	Warnings []merge.Finding
}

// Outcome combines the results of all policies for one object. Its lists are sorted by
// policy name, and within a policy by the order of Rego's sets. Equal requests have equal
// outcomes except for durations. The outcome shares memory with the cache: callers must
// not change it.
type Outcome struct {
	// Changes are those of Deny and Warn policies.
	Changes []merge.DesiredChanges
	// Denials are the reasons to refuse the object; none means that it is admitted.
	Denials  []merge.Finding
	Warnings []merge.Finding
	DryRun   DryRunOutcome
	// Failures are the policies that could not be evaluated. Denials and Warnings already
	// contain their findings.
	Failures    []Failure
	Evaluations []Evaluation
}

// Evaluate evaluates every policy that matches an object. A policy that fails is not an
// error: the Outcome lists it and denies the object. An error means that the input is
// invalid; the caller must not admit the object then either.
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
	responses := s.evaluateAll(ctx, admissionRequest, matched, in.bind())
	var outcome Outcome
	for i, m := range matched {
		outcome.add(m.policy, &responses[i], in.Template)
	}
	s.observe(outcome.Evaluations)
	return outcome, nil
}

// evaluateAll returns the response of each policy to a request, from the cache where
// possible.
func (s *Set) evaluateAll(ctx context.Context, kind requestKind, members []*member, b *boundInput) []response[policyResult] {
	responses := make([]response[policyResult], len(members))
	builder := b.newKeyBuilder(s.segments)
	var (
		text     []byte
		missing  []int
		keys     [][sha256.Size]byte
		policies []*policy
	)
	for i, m := range members {
		start := policytime.MachineNow()
		var key [sha256.Size]byte
		if m.segmentIndexes[kind] != nil {
			text = builder.appendKey(text[:0], m.segmentIndexes[kind])
			key = sha256.Sum256(text)
			if cached, hit := m.caches[kind].Get(key); hit {
				responses[i] = response[policyResult]{value: cached, duration: policytime.MachineNow().Sub(start), cached: true}
				continue
			}
		}
		keys = append(keys, key)
		missing, policies = append(missing, i), append(policies, m.policy)
	}
	evaluated := evaluateInOrder(ctx, s.options.Limits.Evaluation, policies,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (policyResult, error) {
			return p.evaluate(ctx, kind, b.withParameters(p.parameters), cancel)
		})
	for j, r := range evaluated {
		responses[missing[j]] = r
		if r.err == nil && members[missing[j]].segmentIndexes[kind] != nil {
			policies[j].caches[kind].Put(keys[j], r.value, r.value.size())
		}
	}
	return responses
}

func (s *Set) observe(evaluations []Evaluation) {
	if s.options.Observe == nil {
		return
	}
	for _, evaluation := range evaluations {
		s.options.Observe(evaluation)
	}
}

// add adds the response of one policy.
func (o *Outcome) add(p *policy, r *response[policyResult], template bool) {
	evaluation := Evaluation{Policy: p.source.Name, Enforcement: p.enforcement(), Duration: r.duration, Cached: r.cached}
	denials, warnings := r.value.findings(p, template)
	if r.err != nil {
		o.Failures = append(o.Failures, Failure{Policy: p.source.Name, Enforcement: p.enforcement(), Err: r.err})
		denials = []merge.Finding{p.failureFinding(r.err)}
	}
	evaluation.Result = resultOf(r.err, denials, warnings)
	o.Evaluations = append(o.Evaluations, evaluation)

	switch p.enforcement() {
	case v1alpha1.EnforcementDryRun:
		o.DryRun.Denials = append(o.DryRun.Denials, denials...)
		o.DryRun.Warnings = append(o.DryRun.Warnings, warnings...)
		if r.value.hasChanges() {
			o.DryRun.Changes = append(o.DryRun.Changes, r.value.changes)
		}
		return
	case v1alpha1.EnforcementWarn:
		// Without the changes of a mutating policy the object may do what they prevent:
		// its failure denies.
		if r.err == nil || p.module.rules&mutatingRules == 0 {
			warnings = append(denials, warnings...)
			denials = nil
		}
	}
	o.Denials = append(o.Denials, denials...)
	o.Warnings = append(o.Warnings, warnings...)
	if r.value.hasChanges() {
		o.Changes = append(o.Changes, r.value.changes)
	}
}

// findings returns denials and warnings. For a template, a denial that may not hold for
// the pod is a warning.
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

// failureFinding returns the denial of a policy that failed.
func (p *policy) failureFinding(err error) merge.Finding {
	return merge.Finding{
		Policy:  p.source.Name,
		Message: singleLine(fmt.Sprintf("the policy %s could not be evaluated: %v", p.source.Name, err)),
		Fix:     "report this to the cluster's administrators; until the policy is fixed, it refuses all objects that it matches",
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
