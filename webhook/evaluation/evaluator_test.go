// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation_test

import (
	"testing"

	"sluice.dev/api/policytime"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
)

func TestMutateFailsBeforePoliciesAreLoaded(t *testing.T) {
	policyEngine, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	evaluator := &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()}
	if _, err := evaluator.Mutate(t.Context(), decision.Request{Raw: []byte(`{"spec": {"containers": [{"name": "main"}]}}`)}); err == nil {
		t.Error("a pod was evaluated without policies")
	}
}
