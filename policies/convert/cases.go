// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// tryout evaluates examples with all converted policies together, as the cases will be.
type tryout struct {
	cluster   *workbench.Cluster
	tenant    *decision.Tenant
	namespace string
}

// tried is an example with what all policies decide on it.
type tried struct {
	example
	decision *workbench.Decision
}

// generateCases returns the drafts as policies with cases: those of the source, and for each policy an example that it refuses
// or changes and one that it does not, where there is one. The source's own expectation counts: where the policy decides
// otherwise, the entry has a gap.
func generateCases(ctx context.Context, drafts []*draft, libraries []*sharedLibrary) ([]Converted, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	var folder workbench.Folder
	for _, d := range drafts {
		folder.Policies = append(folder.Policies, d.policy)
	}
	for _, l := range libraries {
		folder.Policies = append(folder.Policies, l.policy)
	}
	t := &tryout{}
	var err error
	if t.cluster, err = workbench.NewCluster(folder.Sources(nil)); err != nil {
		return nil, fmt.Errorf("compile the converted policies: %w", err)
	}
	if t.tenant, t.namespace, err = folder.Tenant("", exampleTime); err != nil {
		return nil, err
	}
	pods := t.all(ctx, sharedExamples())
	jobs := t.all(ctx, asJobs(sharedExamples()))
	var converted []Converted
	for _, d := range drafts {
		c := Converted{Policy: d.policy, Source: d.entry.Object}
		shared := pods
		switch kinds := d.policy.Spec.Match.Kinds; {
		case slices.Equal(kinds, []string{kindJob}):
			shared = jobs
		case slices.Contains(kinds, kindJob):
			shared = slices.Concat(pods, jobs)
		}
		for _, test := range d.tests {
			if one := t.sourceCase(ctx, d, test); one != nil {
				c.Cases = append(c.Cases, *one)
			}
		}
		c.Cases = append(c.Cases, t.derivedCases(ctx, d, shared)...)
		uniqueNames(c.Cases)
		converted = append(converted, c)
	}
	return converted, nil
}

// all tries examples. It omits those that cannot be evaluated.
func (t *tryout) all(ctx context.Context, examples []example) []tried {
	var all []tried
	for _, e := range examples {
		if decided := t.decide(ctx, e.object); decided != nil {
			all = append(all, tried{e, decided})
		}
	}
	return all
}

// decide evaluates an object; nil if it cannot be evaluated, such as one that is no valid pod.
func (t *tryout) decide(ctx context.Context, object map[string]any) *workbench.Decision {
	decided, err := t.cluster.Decide(ctx, workbench.Request{
		Object: runtime.DeepCopyJSON(object), Tenant: t.tenant, Namespace: t.namespace, User: "anna", Now: exampleTime,
	})
	if err != nil {
		return nil
	}
	return decided
}

// fires reports whether a policy has findings for an object.
func fires(decided *workbench.Decision, policy string) bool {
	for i := range decided.Results {
		for _, evaluation := range decided.Results[i].Evaluations {
			if evaluation.Policy == policy && evaluation.Result != engine.ResultPassed {
				return true
			}
		}
	}
	return false
}

// changes reports whether a policy changes an object.
func changes(decided *workbench.Decision, policy string) bool {
	for i := range decided.Results {
		if len(decided.Results[i].Merged.ChangedPaths[policy]) > 0 {
			return true
		}
	}
	return false
}

// sourceCase returns the case of a test of the source; nil if the policy decides otherwise, which is a gap.
func (t *tryout) sourceCase(ctx context.Context, d *draft, test sourceTest) *workbench.Case {
	decided := t.decide(ctx, test.object)
	if decided == nil {
		d.entry.note("the test %q is no case: its object cannot be evaluated", test.name)
		return nil
	}
	if fires(decided, d.policy.Name) != test.refused {
		d.entry.refuse("", fmt.Sprintf("the policy decides otherwise than the test %q of the source expects", test.name),
			"compare the policy with the source before you apply it")
		return nil
	}
	one := newCase(test.name, test.object, decided, d)
	return &one
}

// derivedCases returns an example that the policy refuses or changes, and one that it does not.
func (t *tryout) derivedCases(ctx context.Context, d *draft, shared []tried) []workbench.Case {
	var cases []workbench.Case
	own := t.all(ctx, d.examples)
	candidates := append(own, shared...)
	applies := func(one *tried) bool { return fires(one.decision, d.policy.Name) }
	verb, opposite := "refuses", "admits"
	if d.changed != nil {
		applies = func(one *tried) bool {
			return len(one.decision.Denials()) == 0 && changes(one.decision, d.policy.Name)
		}
		verb, opposite = "changes", "leaves"
	} else if d.policy.Spec.Enforcement == v1alpha1.EnforcementWarn {
		verb = "warns of"
	}
	if best := fewestDenials(candidates, applies); best != nil {
		cases = append(cases, newCase(fmt.Sprintf("%s %s a %s %s", d.policy.Name, verb, strings.ToLower(text(best.object["kind"])),
			best.name), best.object, best.decision, d))
	}
	if best := fewestDenials(candidates, func(one *tried) bool {
		return !fires(one.decision, d.policy.Name) && !changes(one.decision, d.policy.Name)
	}); best != nil {
		cases = append(cases, newCase(fmt.Sprintf("%s %s a %s %s", d.policy.Name, opposite, strings.ToLower(text(best.object["kind"])),
			best.name), best.object, best.decision, d))
	}
	return cases
}

// fewestDenials returns the candidate with the fewest denials that meets a condition; nil if none does.
func fewestDenials(candidates []tried, meets func(*tried) bool) *tried {
	var best *tried
	for i := range candidates {
		one := &candidates[i]
		if meets(one) && (best == nil || len(one.decision.Denials()) < len(best.decision.Denials())) {
			best = one
		}
	}
	return best
}

// newCase returns the case of a decision.
func newCase(name string, object map[string]any, decided *workbench.Decision, d *draft) workbench.Case {
	one := workbench.Case{Name: name, Object: object}
	denials, warnings := decided.Denials(), decided.Warnings()
	slices.Sort(denials)
	one.Expect.Denied = slices.Compact(denials)
	if len(denials) == 0 {
		one.Expect.Allowed = true
	}
	if d.policy.Spec.Enforcement == v1alpha1.EnforcementWarn {
		slices.Sort(warnings)
		warnings = slices.Compact(warnings)
		if warnings == nil {
			warnings = []string{}
		}
		one.Expect.Warnings = &warnings
	}
	if part, ok := partOf(d.changed, decided.Object).(map[string]any); ok && one.Expect.Allowed && changes(decided, d.policy.Name) {
		one.Expect.Object = part
	}
	return one
}

// partOf returns the part of an object that a policy sets. Lists are those of the object, with the elements that the policy
// names.
func partOf(changed, admitted any) any {
	switch changed := changed.(type) {
	case map[string]any:
		if elements, ok := admitted.([]any); ok {
			return namedParts(changed, elements)
		}
		part := make(map[string]any)
		for key, child := range changed {
			if value, ok := object(admitted)[key]; ok {
				part[key] = partOf(child, value)
			}
		}
		return part
	case []any:
		return admitted
	}
	return admitted
}

// namedParts returns the parts of the elements that a policy sets by their names, by * for all, or by 0 for the first.
func namedParts(changed map[string]any, elements []any) []any {
	var parts []any
	for i, element := range elements {
		name := text(at(element, "name"))
		child := mergeParts(changed["*"], changed[name])
		if child == nil {
			child = changed["*"]
		}
		if main := changed["0"]; main != nil && i == 0 {
			child = mergeParts(child, main)
		}
		part, ok := partOf(child, element).(map[string]any)
		if child == nil || !ok {
			continue
		}
		part["name"] = name
		parts = append(parts, part)
	}
	return parts
}

// uniqueNames numbers cases of the same name.
func uniqueNames(cases []workbench.Case) {
	seen := make(map[string]int)
	for i := range cases {
		if cases[i].Name == "" {
			cases[i].Name = "case"
		}
		name := cases[i].Name
		if seen[name]++; seen[name] > 1 {
			cases[i].Name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
}

// allExamples returns the examples of the draft, of the source's tests, and those that all policies share.
func (d *draft) allExamples() []example {
	all := slices.Clone(d.examples)
	for _, test := range d.tests {
		all = append(all, example{test.name, test.object})
	}
	shared := sharedExamples()
	switch kinds := d.policy.Spec.Match.Kinds; {
	case slices.Equal(kinds, []string{kindJob}):
		shared = asJobs(shared)
	case slices.Contains(kinds, kindJob):
		shared = append(shared, asJobs(shared)...)
	}
	return append(all, shared...)
}
