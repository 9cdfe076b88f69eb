// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/intent"
)

// Evaluate asks every policy that matches about one object. A policy that cannot
// be asked is no error: it is in the Outcome, and refuses. An error means that
// the question was wrong; the object must then not be admitted either.
func (s *Set) Evaluate(ctx context.Context, in Input) (Outcome, error) {
	if in.object().Absent() {
		return Outcome{}, ErrNoObject
	}
	if in.Now.IsZero() {
		return Outcome{}, ErrNoTime
	}
	matched := s.matching(in.Subject, aboutObject)
	if len(matched) == 0 {
		return Outcome{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	replies := s.ask(ctx, aboutObject, matched, in.bind())
	var outcome Outcome
	for i, m := range matched {
		outcome.take(m.policy, &replies[i], in.Template)
	}
	s.report(outcome.Evaluations)
	return outcome, nil
}

// ask returns each policy's reply to a question: remembered where it was asked the same before,
// else given now.
func (s *Set) ask(ctx context.Context, question question, members []*member, b *bound) []reply[answer] {
	replies := make([]reply[answer], len(members))
	input := b.cutBy(s.pieces)
	var (
		text  []byte
		open  []int
		keys  [][sha256.Size]byte
		asked []*policy
	)
	for i, m := range members {
		began := clock.MachineNow()
		var key [sha256.Size]byte
		if m.reads[question] != nil {
			text = input.key(text[:0], m.reads[question])
			key = sha256.Sum256(text)
			if given, hit := m.memories[question].Get(key); hit {
				replies[i] = reply[answer]{value: given, took: clock.MachineNow().Sub(began), recalled: true}
				continue
			}
		}
		keys = append(keys, key)
		open, asked = append(open, i), append(asked, m.policy)
	}
	given := inTurn(ctx, s.options.Limits.Evaluation, asked,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (answer, error) {
			return p.answer(ctx, question, b.with(p.parameters), cancel)
		})
	for j, reply := range given {
		replies[open[j]] = reply
		if reply.err == nil && members[open[j]].reads[question] != nil {
			asked[j].memories[question].Put(keys[j], reply.value, reply.value.size())
		}
	}
	return replies
}

func (s *Set) report(evaluations []Evaluation) {
	if s.options.Observe == nil {
		return
	}
	for _, evaluation := range evaluations {
		s.options.Observe(evaluation)
	}
}

// take adds what one policy said.
func (o *Outcome) take(p *policy, reply *reply[answer], template bool) {
	asked := Evaluation{Policy: p.source.Name, Enforcement: p.enforcement(), Took: reply.took, Recalled: reply.recalled}
	denials, warnings := reply.value.complaints(p, template)
	if reply.err != nil {
		o.Failures = append(o.Failures, Failure{Policy: p.source.Name, Enforcement: p.enforcement(), Err: reply.err})
		denials = []intent.Complaint{p.failed(reply.err)}
	}
	asked.Verdict = verdict(reply.err, denials, warnings)
	o.Evaluations = append(o.Evaluations, asked)

	switch p.enforcement() {
	case v1alpha1.EnforcementDryRun:
		o.DryRun.Denials = append(o.DryRun.Denials, denials...)
		o.DryRun.Warnings = append(o.DryRun.Warnings, warnings...)
		if reply.value.changes() {
			o.DryRun.Intents = append(o.DryRun.Intents, reply.value.intent)
		}
		return
	case v1alpha1.EnforcementWarn:
		// A policy that was to change the object and could not must not be passed
		// over: without its changes the object may do what they prevent.
		if reply.err == nil || p.module.rules&changing == 0 {
			warnings = append(denials, warnings...)
			denials = nil
		}
	}
	o.Denials = append(o.Denials, denials...)
	o.Warnings = append(o.Warnings, warnings...)
	if reply.value.changes() {
		o.Intents = append(o.Intents, reply.value.intent)
	}
}

// complaints are what the policy refuses and what it warns of. On a template, a
// refusal that may be otherwise by the time of the pod is a warning.
func (a *answer) complaints(p *policy, template bool) (denials, warnings []intent.Complaint) {
	for _, rule := range []ruleName{ruleDeny, ruleViolation} {
		found := a.deny
		if rule == ruleViolation {
			found = a.violation
		}
		if template && p.module.momentary.has(rule) {
			warnings = append(warnings, found...)
		} else {
			denials = append(denials, found...)
		}
	}
	return denials, append(warnings, a.warn...)
}

// failed is how a policy refuses that could not be asked.
func (p *policy) failed(err error) intent.Complaint {
	return intent.Complaint{
		Policy:  p.source.Name,
		Message: line(fmt.Sprintf("the policy %s could not be evaluated: %v", p.source.Name, err)),
		Fix:     "tell the cluster's administrators; until the policy is mended it refuses what it is asked about",
	}
}

func verdict(err error, denials, warnings []intent.Complaint) Verdict {
	switch {
	case errors.Is(err, ErrDeadline), errors.Is(err, ErrRequestDeadline), errors.Is(err, ErrBusy):
		return VerdictTimedOut
	case err != nil:
		return VerdictFailed
	case len(denials) > 0:
		return VerdictDenied
	case len(warnings) > 0:
		return VerdictWarned
	}
	return VerdictPassed
}
