// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice.dev/webhook/decisionlog"
)

// Summary says which decisions would come out otherwise.
type Summary struct {
	// Decisions is the number of selected decisions, and the others how many of them have which outcome.
	Decisions   int `json:"decisions"`
	Same        int `json:"same"`
	NowDenied   int `json:"nowDenied"`
	NowAllowed  int `json:"nowAllowed"`
	Changed     int `json:"changed"`
	NotReplayed int `json:"notReplayed"`
	// From and To are the times of the first and the last decision.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Reasons are why decisions were not replayed, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	// Policies are those for which decisions differ, or were not replayed.
	Policies []PolicyCount `json:"policies,omitempty"`
	// Examples are the first decisions of each outcome that differs.
	Examples []Example `json:"examples,omitempty"`
	// Skipped counts lines of the logs that are no records, and Problems are logs that were not read to their end.
	Skipped  decisionlog.Skipped `json:"skipped"`
	Problems []string            `json:"problems,omitempty"`

	maxExamples int
	reasons     map[string]int
	policies    map[string]*PolicyCount
	examples    map[Outcome]int
}

// Reason is why decisions were not replayed.
type Reason struct {
	// Reason is the text, and Count the number of decisions.
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// PolicyCount is how many decisions differ for one policy. A decision can count for several.
type PolicyCount struct {
	// Policy is its name.
	Policy      string `json:"policy"`
	NowDenied   int    `json:"nowDenied"`
	NowAllowed  int    `json:"nowAllowed"`
	Changed     int    `json:"changed"`
	NotReplayed int    `json:"notReplayed"`
}

// Example is a decision that differs.
type Example struct {
	// Outcome is how it differs, for which Policies.
	Outcome  Outcome  `json:"outcome"`
	Policies []string `json:"policies,omitempty"`
	// The object, and the user who created it at a time.
	Time      time.Time `json:"time"`
	Webhook   string    `json:"webhook"`
	Project   string    `json:"project"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	User      string    `json:"user"`
	// Before and Now are the denials and warnings, a line each.
	Before string `json:"before"`
	Now    string `json:"now"`
}

// maxReasons limits the different reasons of a summary.
const maxReasons = 1000

func newSummary(examples int) *Summary {
	return &Summary{
		maxExamples: examples, reasons: make(map[string]int), policies: make(map[string]*PolicyCount), examples: make(map[Outcome]int),
	}
}

// Differs reports whether a decision is another one now.
func (s *Summary) Differs() bool { return s.NowDenied+s.NowAllowed+s.Changed > 0 }

// add adds a line in the order of the logs.
func (s *Summary) add(next *line) {
	if next.err != nil {
		s.Skipped.Count(next.err)
	}
	if !next.decided {
		return
	}
	record, result := next.record, &next.result
	s.Decisions++
	if s.From.IsZero() || record.Time.Before(s.From) {
		s.From = record.Time
	}
	if record.Time.After(s.To) {
		s.To = record.Time
	}
	if result.Outcome == Same {
		s.Same++
		return
	}
	for _, policy := range result.Policies {
		if s.policies[policy] == nil {
			s.policies[policy] = &PolicyCount{Policy: policy}
		}
	}
	count := func(total *int, of func(*PolicyCount) *int) {
		*total++
		for _, policy := range result.Policies {
			*of(s.policies[policy])++
		}
	}
	switch result.Outcome {
	case NowDenied:
		count(&s.NowDenied, func(p *PolicyCount) *int { return &p.NowDenied })
	case NowAllowed:
		count(&s.NowAllowed, func(p *PolicyCount) *int { return &p.NowAllowed })
	case Changed:
		count(&s.Changed, func(p *PolicyCount) *int { return &p.Changed })
	default:
		count(&s.NotReplayed, func(p *PolicyCount) *int { return &p.NotReplayed })
		reason := result.Reason
		if _, known := s.reasons[reason]; !known && len(s.reasons) >= maxReasons {
			reason = "other reasons"
		}
		s.reasons[reason]++
		return
	}
	if s.examples[result.Outcome]++; s.examples[result.Outcome] <= s.maxExamples {
		s.Examples = append(s.Examples, newExample(record, result))
	}
}

func newExample(record *decisionlog.Record, result *Result) Example {
	name := record.Name
	if name == "" && record.GenerateName != "" {
		name = record.GenerateName + "*"
	}
	messages := func(r *decisionlog.Record) string {
		return strings.Trim(r.Message+"\n"+strings.Join(r.Warnings, "\n"), "\n")
	}
	return Example{
		Outcome: result.Outcome, Policies: result.Policies, Time: record.Time, Webhook: record.Webhook, Project: record.Project,
		Kind: record.ObjectKind, Namespace: record.Namespace, Name: name, User: record.User,
		Before: messages(record), Now: messages(&result.Now),
	}
}

// finish sorts what was collected.
func (s *Summary) finish() {
	for reason, count := range s.reasons {
		s.Reasons = append(s.Reasons, Reason{reason, count})
	}
	slices.SortFunc(s.Reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason)) })
	for _, policy := range slices.Sorted(maps.Keys(s.policies)) {
		s.Policies = append(s.Policies, *s.policies[policy])
	}
	order := []Outcome{NowDenied, NowAllowed, Changed}
	slices.SortStableFunc(s.Examples, func(a, b Example) int {
		return cmp.Compare(slices.Index(order, a.Outcome), slices.Index(order, b.Outcome))
	})
}
