// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// sluice is Sluice's engine with these policies. It caches this many results of each: 0
// is the default, -1 none.
func sluice(tb testing.TB, policies []policy, cacheEntries int) *engine.Engine {
	tb.Helper()
	// A busy machine must not fail a policy.
	limits := engine.Limits{Evaluation: time.Minute, Request: time.Minute}
	e, err := engine.New(engine.Options{Limits: limits, CacheEntries: cacheEntries})
	if err != nil {
		tb.Fatal(err)
	}
	sources := make([]engine.Source, 0, len(policies))
	for _, p := range policies {
		sources = append(sources, engine.Source{
			Name: p.name, Rego: p.rego, Parameters: p.parametersJSON(tb),
			Match: v1alpha1.PolicyMatch{Kinds: []string{"Pod"}},
		})
	}
	for _, report := range e.Update(sources) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return e
}

// now is the time of all requests.
var now = time.Date(2026, 10, 15, 12, 0, 0, 0, time.UTC)

// evaluateWith does what Sluice's webhook does with a body: decode and evaluate.
func evaluateWith(tb testing.TB, e *engine.Engine, body []byte) engine.Outcome {
	decoded, err := document.Decode(body)
	if err != nil {
		tb.Fatal(err)
	}
	set, err := e.Current()
	if err != nil {
		tb.Fatal(err)
	}
	outcome, err := set.Evaluate(tb.Context(), engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Project: "thesis"},
		Review:  decoded.Field("request"),
		Now:     now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if len(outcome.Failures) > 0 {
		tb.Fatal(outcome.Failures[0].Err)
	}
	return outcome
}
