// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
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
	// ResultExempted: it would have denied the object, which is exempted.
	ResultExempted Result = "exempted"
	// ResultFailed: it returned an error, or a value of the wrong type.
	ResultFailed Result = "failed"
	// ResultTimedOut: it took longer than a policy may.
	ResultTimedOut Result = "timed-out"
	// ResultUnevaluated: the request ended before, or the process had too little processor time.
	ResultUnevaluated Result = "unevaluated"
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
	// Version and Project are those of an evaluation that timed out; else they are empty.
	Version Version
	Project string
}

// IsComplete reports whether the policy was evaluated to its end, so that the same object has the
// same result later.
func (e Evaluation) IsComplete() bool {
	return e.Result == ResultPassed || e.Result == ResultWarned || e.Result == ResultDenied || e.Result == ResultExempted
}

// Failure is a policy that could not be evaluated.
type Failure struct {
	Policy      string
	Enforcement v1alpha1.Enforcement
	// Err is [ErrDeadline], [ErrShape], a [LimitError], a [Problem] with its place in the
	// policy, or another error of the evaluation; in a [Rendering] also [ErrRequestDeadline]
	// or [ErrBusy].
	Err error
}

// Outcome combines the results of all policies for one object. Its lists are sorted by
// policy name, and within a policy by the order of Rego's sets. Equal requests have equal
// outcomes except for durations. The outcome shares memory with the cache: callers must
// not change it.
type Outcome struct {
	Changes []merge.DesiredChanges
	// Denials are the reasons to refuse the object; none means that it is admitted.
	Denials  []merge.Finding
	Warnings []merge.Finding
	// Failures are the policies that could not be evaluated. Denials and Warnings already
	// contain their findings.
	Failures []Failure
	// Paused are the policies whose denials are among the Warnings because of a pause.
	Paused []string
	// Exempted are the policies whose denials are among the Warnings because of an exemption.
	Exempted    []string
	Evaluations []Evaluation
}

// Evaluate evaluates every policy that matches an object, except those in DryRun. A policy that
// fails is not an error: the Outcome lists it and denies the object. An error means that the
// input is invalid, or that there was no time ([ErrRequestDeadline], [ErrBusy]); the caller
// must not admit the object then either.
func (s *Set) Evaluate(ctx context.Context, in Input) (Outcome, error) {
	return s.evaluateMatching(ctx, in, func(m *member) bool { return m.enforcement() != v1alpha1.EnforcementDryRun })
}

// EvaluateDryRun evaluates every policy in DryRun that matches an object. The Outcome is what
// they would do as Deny policies.
func (s *Set) EvaluateDryRun(ctx context.Context, in Input) (Outcome, error) {
	return s.evaluateMatching(ctx, in, isDryRun)
}

// HasDryRun reports whether a policy in DryRun matches.
func (s *Set) HasDryRun(subject Subject) bool {
	return s.hasDryRun && slices.ContainsFunc(s.match(subject, admissionRequest), isDryRun)
}

func isDryRun(m *member) bool { return m.enforcement() == v1alpha1.EnforcementDryRun }

func (s *Set) evaluateMatching(ctx context.Context, in Input, selected func(*member) bool) (Outcome, error) {
	if in.object().IsAbsent() {
		return Outcome{}, ErrNoObject
	}
	if in.Now.IsZero() {
		return Outcome{}, ErrNoTime
	}
	matched := slices.DeleteFunc(s.match(in.Subject, admissionRequest), func(m *member) bool { return !selected(m) })
	if len(matched) == 0 {
		return Outcome{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	responses := s.evaluateAll(ctx, admissionRequest, matched, in.bind())
	if err := requestError(responses); err != nil {
		return Outcome{}, err
	}
	var outcome Outcome
	for i, m := range matched {
		outcome.add(m.policy, &responses[i], &in)
	}
	s.observe(outcome.Evaluations)
	return outcome, nil
}

// evaluateAll returns the response of each policy to a request, from the cache where
// possible.
func (s *Set) evaluateAll(
	ctx context.Context, kind requestKind, members []*member, b *boundInput,
) []response[policyResult] {
	responses := make([]response[policyResult], len(members))
	builder := b.newKeyBuilder(s.segments)
	var (
		text     []byte
		missing  []int
		keys     [][sha256.Size]byte
		policies []*policy
	)
	for i, m := range members {
		if m.unusable != nil {
			responses[i].err = m.unusable
			continue
		}
		view := s.view(m.policy, kind)
		if view != nil && view.err != nil {
			responses[i].err = view.err
			continue
		}
		start := policytime.MachineNow()
		var key [sha256.Size]byte
		if m.segmentIndexes[kind] != nil {
			text = builder.appendKey(text[:0], m.segmentIndexes[kind])
			if view != nil {
				text = view.appendKey(text, b.input.namespace())
			}
			key = sha256.Sum256(text)
			if cached, hit := m.caches[kind].Get(key); hit {
				responses[i] = response[policyResult]{value: cached, duration: policytime.MachineNow().Sub(start), cached: true}
				continue
			}
		}
		keys = append(keys, key)
		missing, policies = append(missing, i), append(policies, m.policy)
	}
	if len(policies) > 0 {
		b.prepare()
	}
	evaluated := evaluateInOrder(ctx, s.options.Limits.Evaluation, policies,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (policyResult, error) {
			data := noData
			if view := s.view(p, kind); view != nil {
				data = view.transaction(b.input.namespace())
			}
			return p.evaluate(ctx, kind, b.withParameters(p.parameters), data, cancel)
		})
	for j, r := range evaluated {
		responses[missing[j]] = r
		if r.err == nil && members[missing[j]].segmentIndexes[kind] != nil {
			policies[j].caches[kind].Put(keys[j], r.value, r.value.size())
		}
	}
	return responses
}

// requestError returns the error for which the whole request has no result, or nil.
func requestError(responses []response[policyResult]) error {
	for i := range responses {
		if err := responses[i].err; errors.Is(err, ErrRequestDeadline) || errors.Is(err, ErrBusy) {
			return err
		}
	}
	return nil
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
func (o *Outcome) add(p *policy, r *response[policyResult], in *Input) {
	paused := p.isPaused(in)
	enforcement := p.enforcement()
	if paused {
		enforcement = v1alpha1.EnforcementWarn
	}
	required := p.isRequired() && !paused
	evaluation := Evaluation{Policy: p.source.Name, Enforcement: enforcement, Duration: r.duration, Cached: r.cached}
	denials, warnings := r.value.findings(p, in)
	switch {
	case r.err != nil:
		o.Failures = append(o.Failures, Failure{Policy: p.source.Name, Enforcement: enforcement, Err: r.err})
		denials = []merge.Finding{p.failureFinding(r.err)}
	}
	evaluation.Result = resultOf(r.err, denials, warnings)
	if evaluation.Result == ResultTimedOut {
		evaluation.Version, evaluation.Project = p.version(), in.Subject.Project
	}
	// What a policy that failed would have decided is not known, so an exemption does not cover a failure.
	if exemption := p.exemption(in); exemption != nil && evaluation.Result == ResultDenied {
		evaluation.Result = ResultExempted
		o.Exempted = append(o.Exempted, p.source.Name)
		denials, warnings = nil, append(exemptedFindings(denials, exemption), warnings...)
	}
	o.Evaluations = append(o.Evaluations, evaluation)

	// A Warn policy only warns, unless its failure denies.
	if enforcement == v1alpha1.EnforcementWarn && (r.err == nil || !required) {
		if paused && (p.enforcement() == v1alpha1.EnforcementDeny || r.err != nil && p.isRequired()) {
			denials = pausedFindings(denials, in.PausedUntil)
			if len(denials) > 0 {
				o.Paused = append(o.Paused, p.source.Name)
			}
		}
		warnings = append(denials, warnings...)
		denials = nil
	}
	o.Denials = append(o.Denials, denials...)
	o.Warnings = append(o.Warnings, warnings...)
	if r.value.hasChanges() {
		o.Changes = append(o.Changes, r.value.changes)
	}
}

// isRequired reports whether a failure of the policy denies the object: that of a Deny policy,
// and of a Warn policy that changes objects, since without its changes an object may do what
// they prevent.
func (p *policy) isRequired() bool {
	return p.enforcement() == v1alpha1.EnforcementDeny ||
		p.enforcement() == v1alpha1.EnforcementWarn && p.module.rules&mutatingRules != 0
}

// findings returns denials and warnings. For a template, a denial that may not hold for
// the pod is a warning; for an object that exists, such a rule is about its creation, and
// has no findings.
func (a *policyResult) findings(p *policy, in *Input) (denials, warnings []merge.Finding) {
	for _, rule := range []ruleName{ruleDeny, ruleViolation} {
		found := a.deny
		if rule == ruleViolation {
			found = a.violation
		}
		switch volatile := p.module.volatile.has(rule); {
		case volatile && in.Existing:
		case volatile && in.Template:
			warnings = append(warnings, found...)
		default:
			denials = append(denials, found...)
		}
	}
	if in.Existing && p.module.volatile.has(ruleWarn) {
		return denials, warnings
	}
	return denials, append(warnings, a.warn...)
}

func resultOf(err error, denials, warnings []merge.Finding) Result {
	switch {
	case errors.Is(err, ErrDeadline):
		return ResultTimedOut
	case errors.Is(err, ErrRequestDeadline), errors.Is(err, ErrBusy):
		return ResultUnevaluated
	case err != nil:
		return ResultFailed
	case len(denials) > 0:
		return ResultDenied
	case len(warnings) > 0:
		return ResultWarned
	}
	return ResultPassed
}
