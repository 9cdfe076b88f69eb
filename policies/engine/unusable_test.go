// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

const (
	goodSource     = "package p\n\ndeny contains \"good\"\n"
	brokenSource   = "package p\n\ndeny contains \"broken\" if input.objekt\n"
	brokenMutation = "package p\n\noverrides := {\"spec\": input.objekt}\n"
)

// A policy that does not compile keeps its last good version, also after a restart: then the
// version comes with the source. Guards invariant 4 of the design.
func TestLastGoodVersionSurvivesARestart(t *testing.T) {
	lastGood := func(rego string, rejections ...engine.Problem) *engine.Source {
		return &engine.Source{Name: "p", Rego: rego, Generation: 3, Rejections: rejections}
	}
	for name, tt := range map[string]struct {
		// before are the sources of the update before, if any.
		before []engine.Source
		source engine.Source
		// enforced is the generation in force, and denied the denial of a pod.
		enforced int64
		denied   string
		refusing bool
	}{
		"a good source": {
			source: engine.Source{Name: "p", Rego: goodSource, Generation: 4, LastGood: lastGood("package p\n\ndeny contains \"old\"\n")}, enforced: 4, denied: "good",
		},
		"a broken one": {
			source: engine.Source{Name: "p", Rego: brokenSource, Generation: 4, LastGood: lastGood(goodSource)}, enforced: 3, denied: "good",
		},
		"a rejected one": {
			source:   engine.Source{Name: "p", Rego: brokenSource, Generation: 4, LastGood: lastGood(goodSource), Rejections: []engine.Problem{{Message: "too much"}}},
			enforced: 3, denied: "good",
		},
		"invalid parameters": {
			source:   engine.Source{Name: "p", Rego: goodSource, Parameters: []byte("[]"), Generation: 4, LastGood: lastGood(goodSource)},
			enforced: 3, denied: "good",
		},
		"the version in memory first": {
			before: []engine.Source{{Name: "p", Rego: "package p\n\ndeny contains \"memory\"\n", Generation: 4}},
			source: engine.Source{Name: "p", Rego: brokenSource, Generation: 5, LastGood: lastGood(goodSource)}, enforced: 4, denied: "memory",
		},
		"both broken": {
			source: engine.Source{Name: "p", Rego: brokenSource, Generation: 4, LastGood: lastGood("package p\n\ndeny := 3\n")},
			denied: "no version of it is in force: p:3:27: input.objekt does not exist", refusing: true,
		},
		"a rejected last good version": {
			source: engine.Source{Name: "p", Rego: brokenSource, Generation: 4, LastGood: lastGood(goodSource, engine.Problem{Message: "too much"})},
			denied: "no version of it is in force", refusing: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, tt.before...)
			report := e.Update([]engine.Source{tt.source})[0]
			if report.EnforcedGeneration != tt.enforced || report.Generation != tt.source.Generation ||
				report.Refusing != tt.refusing || report.Active == tt.refusing {
				t.Errorf("report %+v", report)
			}
			outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod"}`))
			if err != nil || len(outcome.Denials) != 1 || !strings.Contains(outcome.Denials[0].Message, tt.denied) {
				t.Errorf("outcome %+v, error %v, want the denial %q", outcome.Denials, err, tt.denied)
			}
		})
	}
}

// A policy without any good version refuses what it matches if it is in Deny or changes objects, and
// nothing else. Guards invariants 2 and 4 of the design.
func TestPolicyWithoutAGoodVersionRefusesWhatItMatches(t *testing.T) {
	for name, tt := range map[string]struct {
		source  engine.Source
		refuses bool
	}{
		"Deny":                       {engine.Source{Rego: brokenSource}, true},
		"Deny, not Rego":             {engine.Source{Rego: "{", Enforcement: v1alpha1.EnforcementDeny}, true},
		"Deny for the project":       {engine.Source{Rego: brokenSource, Match: v1alpha1.PolicyMatch{Projects: []string{"thesis"}}}, true},
		"Deny for another project":   {engine.Source{Rego: brokenSource, Match: v1alpha1.PolicyMatch{Projects: []string{"other"}}}, false},
		"Deny for another kind":      {engine.Source{Rego: brokenSource, Match: v1alpha1.PolicyMatch{Kinds: []string{"Job.batch"}}}, false},
		"Warn":                       {engine.Source{Rego: brokenSource, Enforcement: v1alpha1.EnforcementWarn}, false},
		"Warn that changes objects":  {engine.Source{Rego: brokenMutation, Enforcement: v1alpha1.EnforcementWarn}, true},
		"Warn, rejected":             {engine.Source{Rego: brokenMutation, Enforcement: v1alpha1.EnforcementWarn, Rejections: []engine.Problem{{Message: "too much"}}}, false},
		"DryRun":                     {engine.Source{Rego: brokenSource, Enforcement: v1alpha1.EnforcementDryRun}, false},
		"DryRun that changes object": {engine.Source{Rego: brokenMutation, Enforcement: v1alpha1.EnforcementDryRun}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			tt.source.Name = "p"
			report := e.Update([]engine.Source{tt.source, {Name: "other", Rego: "package other\n\nwarn contains \"other\"\n"}})[1]
			if len(report.Problems) == 0 || report.Active {
				t.Errorf("report %+v", report)
			}
			outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod"}`))
			if err != nil || (len(outcome.Denials) > 0) != tt.refuses || len(outcome.Warnings) != 1 {
				t.Errorf("outcome %+v, error %v, want refused: %v", outcome, err, tt.refuses)
			}
			dryRun, err := e.Current()
			if err != nil || dryRun.HasDryRun(podInput(t, "{}").Subject) {
				t.Errorf("a broken policy is evaluated in DryRun (error %v)", err)
			}
		})
	}
}

// Objects that an unusable policy rendered must stay, so it fails. Tools omit such a policy.
func TestPolicyWithoutAGoodVersionFailsToRender(t *testing.T) {
	broken := engine.Source{Name: "p", Rego: "package p\n\nobjects contains input.objekt\n"}
	e := newEngine(t)
	e.Update([]engine.Source{broken})
	rendering, err := e.RenderObjects(t.Context(), podInput(t, `{"kind": "Project"}`))
	if err != nil || len(rendering.Failures) != 1 || !errors.Is(rendering.Failures[0].Err, engine.ErrUnusable) {
		t.Errorf("rendering %+v, error %v", rendering, err)
	}
	// One without objects fails no rendering: that would hold back the quota of every project.
	e.Update([]engine.Source{{Name: "p", Rego: brokenSource}})
	if rendering, err := e.RenderObjects(t.Context(), podInput(t, `{"kind": "Project"}`)); err != nil || len(rendering.Failures) > 0 {
		t.Errorf("rendering %+v, error %v", rendering, err)
	}
	set, _, err := engine.Compile([]engine.Source{broken}, engine.Options{})
	if err != nil || len(set.Names()) > 0 {
		t.Errorf("policies %v, error %v", set.Names(), err)
	}
	// Once it is fixed it is evaluated again.
	broken.Rego = goodSource
	if report := e.Update([]engine.Source{broken})[0]; !report.Active || report.Refusing {
		t.Errorf("report %+v", report)
	}
}

// An unusable policy does not replace core.quota, and the set's digest shows that it is unusable.
func TestUnusablePolicyReplacesOnlyWhatItMay(t *testing.T) {
	quota := engine.Source{Name: "core.quota", Rego: goodSource, BuiltIn: true}
	e := newEngine(t, quota)
	before, _ := e.Current()
	e.Update([]engine.Source{quota, {Name: "p", Rego: brokenSource, Replaces: "core.quota"}})
	after, _ := e.Current()
	if before.Digest() == after.Digest() {
		t.Error("the digests are equal")
	}
	outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod"}`))
	if err != nil || len(outcome.Denials) != 2 {
		t.Errorf("outcome %+v, error %v, want the denials of both", outcome.Denials, err)
	}
}
