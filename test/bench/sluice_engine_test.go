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

// sluice is Sluice's engine with these policies in force; it remembers as many
// answers as it is told, 0 for as many as it does of itself and -1 for none.
func sluice(tb testing.TB, policies []policy, remember int) *engine.Engine {
	tb.Helper()
	// Where the machine is busy, no policy is to be cut off.
	limits := engine.Limits{Evaluation: time.Minute, Request: time.Minute}
	e, err := engine.New(engine.Options{Limits: limits, Remember: remember})
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

// evaluateWith is what Sluice's webhook does with a body: decode it and ask.
func evaluateWith(tb testing.TB, e *engine.Engine, body []byte) engine.Outcome {
	decoded, err := document.Decode(body)
	if err != nil {
		tb.Fatal(err)
	}
	outcome, err := e.Evaluate(tb.Context(), engine.Input{
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
