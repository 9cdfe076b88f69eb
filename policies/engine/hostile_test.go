// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/test/corpus"
)

// Every policy that takes time without end is ended, in bounded memory, and only refuses what it matches itself.
// Guards invariant 10 of the design.
func TestEndlessPoliciesAreBounded(t *testing.T) {
	const maxAllocated = 512 << 20
	for name, rule := range corpus.Policies {
		t.Run(name, func(t *testing.T) {
			endless := engine.Source{Name: "endless", Rego: "package endless\n\n" + rule}
			modest := engine.Source{Name: "modest", Rego: "package modest\n\nwarn contains \"seen\""}
			options := engine.Options{Limits: engine.Limits{Evaluation: 200 * time.Millisecond, Request: time.Minute}}
			e := newEngineWithOptions(t, options, endless, modest)
			var before, after runtime.MemStats
			outcome := evaluateUnlessBusy(t, e, podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`), func() { runtime.ReadMemStats(&before) })
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
				t.Errorf("%d MiB allocated, want at most %d", allocated>>20, maxAllocated>>20)
			}
			if len(outcome.Failures) != 1 || outcome.Failures[0].Policy != "endless" || !errors.Is(outcome.Failures[0].Err, engine.ErrDeadline) {
				t.Fatalf("failures: %v", outcome.Failures)
			}
			if len(outcome.Denials) != 1 || !strings.HasPrefix(outcome.Denials[0].Message, "too large: the policy endless") {
				t.Errorf("denials: %v", outcome.Denials)
			}
			if len(outcome.Warnings) != 1 || outcome.Warnings[0].Policy != "modest" {
				t.Errorf("the other policy's warnings: %v", outcome.Warnings)
			}
		})
	}
}

// evaluateUnlessBusy evaluates an object until the machine has the time for it. It calls begin before each evaluation.
func evaluateUnlessBusy(t *testing.T, e *engine.Engine, in engine.Input, begin func()) engine.Outcome {
	t.Helper()
	for {
		begin()
		outcome, err := e.Evaluate(t.Context(), in)
		if errors.Is(err, engine.ErrBusy) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
}

// A policy that takes too long refuses the object where it is in Deny, built in or not, and is a warning where it is in Warn. In DryRun
// it is recorded. The evaluation says of which version it was, and for which project.
func TestEnforcementOfTimeOuts(t *testing.T) {
	const rego = "package p\n\n"
	rule := corpus.Policies["endless search"]
	options := engine.Options{Limits: engine.Limits{Evaluation: 20 * time.Millisecond, Request: time.Minute}}
	var observed []engine.Evaluation
	options.Observe = func(evaluation engine.Evaluation) { observed = append(observed, evaluation) }
	in := podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`)
	for name, tc := range map[string]struct {
		source            engine.Source
		denials, warnings int
	}{
		"deny":     {engine.Source{Rego: rego + rule}, 1, 0},
		"built in": {engine.Source{Rego: rego + rule, BuiltIn: true}, 1, 0},
		"warn":     {engine.Source{Rego: rego + rule, Enforcement: v1alpha1.EnforcementWarn}, 0, 1},
		"dry run":  {engine.Source{Rego: rego + rule, Enforcement: v1alpha1.EnforcementDryRun}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.source.Name = "slow"
			e := newEngineWithOptions(t, options, tc.source)
			observed = nil
			outcome := evaluateUnlessBusy(t, e, in, func() {})
			if len(outcome.Denials) != tc.denials || len(outcome.Warnings) != tc.warnings {
				t.Errorf("denials %v, warnings %v", outcome.Denials, outcome.Warnings)
			}
			for len(observed) == 0 {
				set, err := e.Current()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := set.EvaluateDryRun(t.Context(), in); err != nil && !errors.Is(err, engine.ErrBusy) {
					t.Fatal(err)
				}
			}
			got := observed[0]
			if got.Result != engine.ResultTimedOut || got.Version.Policy != "slow" || got.Project != "thesis" {
				t.Errorf("observed %+v", got)
			}
		})
	}
}

// The limits of built-in functions do not reach what policies ordinarily do.
func TestOrdinaryCallsAreWithinLimits(t *testing.T) {
	for name, condition := range map[string]string{
		"pattern":         `regex.match("^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.]){0,3}$", "example.")`,
		"matches":         `count(regex.find_n("[a-z]+", substring(input.object.spec.text, 0, 60000), -1)) == 6000`,
		"first groups":    `count(regex.find_all_string_submatch_n("(a)(b)(c)", substring(input.object.spec.text, 0, 60000), 1)) == 0`,
		"parts":           `count(split(input.object.spec.text, "-")) == 13108`,
		"YAML":            `yaml.unmarshal("a: [1, 2]\nb: ls *.txt && cat *a\n").a[1] == 2`,
		"template string": `$"{input.object.metadata.name}-x" == "a-x"`,
		"indexes":         `count(indexof_n(input.object.spec.text, "-")) == 13107`,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Source{Name: "modest", Rego: "package modest\n\nwarn contains \"seen\" if " + condition})
			pod := `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"text": "` + strings.Repeat("aaaaaaaaa-", 13107) + `"}}`
			outcome, err := e.Evaluate(t.Context(), podInput(t, pod))
			if err != nil || len(outcome.Failures) > 0 || len(outcome.Warnings) != 1 {
				t.Errorf("error %v, failures %v, warnings %v", err, outcome.Failures, outcome.Warnings)
			}
		})
	}
}

// A large object is no policy's fault: it is converted before the first evaluation begins.
func TestLargeObjectIsNoPolicysFault(t *testing.T) {
	options := engine.Options{Limits: engine.Limits{Evaluation: 10 * time.Millisecond, Request: time.Minute}}
	e := newEngineWithOptions(t, options,
		engine.Source{Name: "a", Rego: "package a\n\nwarn contains \"seen\" if input.object.metadata.name"},
		engine.Source{Name: "b", Rego: "package b\n\nwarn contains \"seen\" if input.object.metadata.name"})
	pod := `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"list": [1` + strings.Repeat(`, {"a": []}`, 200_000) + `]}}`
	outcome, err := e.Evaluate(t.Context(), podInput(t, pod))
	if err != nil || len(outcome.Failures) > 0 || len(outcome.Warnings) != 2 {
		t.Errorf("error %v, failures %v, warnings %v", err, outcome.Failures, outcome.Warnings)
	}
}
