// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
	"sluice.dev/test/corpus"
)

// Every hostile policy ends, in bounded memory, and only refuses what it matches itself.
// Guards invariant 10 of the design.
func TestHostilePoliciesAreBounded(t *testing.T) {
	const maxAllocated = 512 << 20
	for name, tc := range corpus.Policies {
		t.Run(name, func(t *testing.T) {
			hostile := engine.Source{Name: "hostile", Rego: "package hostile\n\n" + tc.Rule}
			modest := engine.Source{Name: "modest", Rego: "package modest\n\nwarn contains \"seen\""}
			limit := 200 * time.Millisecond
			if tc.Message != corpus.ProcessorTime {
				limit = 5 * time.Second // another limit comes first, on a slow machine too
			}
			options := engine.Options{Limits: engine.Limits{Evaluation: limit, Request: time.Minute}}
			e := newEngineWithOptions(t, options, hostile, modest)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`))
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
				t.Errorf("%d MiB allocated, want at most %d", allocated>>20, maxAllocated>>20)
			}
			if len(outcome.Failures) != 1 || outcome.Failures[0].Policy != "hostile" {
				t.Fatalf("failures: %v", outcome.Failures)
			}
			if got := outcome.Failures[0].Err.Error(); !strings.Contains(got, tc.Message) {
				t.Errorf("%s, want %s", got, tc.Message)
			}
			if len(outcome.Warnings) != 1 || outcome.Warnings[0].Policy != "modest" {
				t.Errorf("the other policy's warnings: %v", outcome.Warnings)
			}
		})
	}
}

// A policy that keeps exceeding its processor time is no longer evaluated for that project: it
// refuses what it matches where it is in Deny, and is skipped where it only warns. Other projects are evaluated.
func TestQuarantinedPolicyAnswersAtOnce(t *testing.T) {
	rule := corpus.Policies["endless search"].Rule
	deny := engine.Source{Name: "deny", Rego: "package deny1\n\n" + rule}
	warn := engine.Source{Name: "warn", Enforcement: "Warn", Rego: "package warn1\n\n" + rule}
	options := engine.Options{Limits: engine.Limits{Evaluation: 20 * time.Millisecond, Request: time.Minute}, CacheEntries: -1}
	e := newEngineWithOptions(t, options, deny, warn)
	in := podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`)
	for range 3 {
		if _, err := e.Evaluate(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	outcome, err := e.Evaluate(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Failures) != 1 || !errors.Is(outcome.Failures[0].Err, engine.ErrQuarantined) || outcome.Failures[0].Policy != "deny" {
		t.Errorf("failures: %v", outcome.Failures)
	}
	if len(outcome.Denials) != 1 || outcome.Denials[0].Policy != "deny" || len(outcome.Warnings) != 0 {
		t.Errorf("denials %v, warnings %v", outcome.Denials, outcome.Warnings)
	}
	in.Subject.Project = "another"
	if outcome, err = e.Evaluate(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, failure := range outcome.Failures {
		if !errors.Is(failure.Err, engine.ErrDeadline) {
			t.Errorf("another project: %v", failure.Err)
		}
	}
}

// The limits of built-in functions do not reach what policies ordinarily do.
func TestOrdinaryCallsAreWithinLimits(t *testing.T) {
	for name, condition := range map[string]string{
		"pattern":         `regex.match("^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.]){0,3}$", "example.")`,
		"matches":         `count(regex.find_n("[a-z]+", input.object.spec.text, -1)) == 13107`,
		"first groups":    `count(regex.find_all_string_submatch_n("(a)(b)(c)", input.object.spec.text, 1)) == 0`,
		"parts":           `count(split(input.object.spec.text, "-")) == 13108`,
		"YAML":            `yaml.unmarshal("a: [1, 2]\nb: ls *.txt && cat *a\n").a[1] == 2`,
		"template string": `$"{input.object.metadata.name}-x" == "a-x"`,
		"product":         `product([2, 3, 1024]) == 6144`,
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

// A large object is no policy's fault: it is converted before the first evaluation begins. Otherwise the
// policy would be abandoned, and the next one would convert it at the same time.
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
