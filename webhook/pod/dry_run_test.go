// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// Policies in DryRun are evaluated after the answer, and only logged. Guards invariant 10 of the
// design: no request waits for them.
func TestDryRunPoliciesAreEvaluatedAfterTheAnswer(t *testing.T) {
	base := newBase(t, engine.Source{
		Name: "trial", Enforcement: v1alpha1.EnforcementDryRun,
		Rego: `package trial
deny contains "too many variables" if count(input.object.spec.containers[0].env) > 1
overrides := {"metadata": {"labels": {"trial": "yes"}}}`,
	})
	logged := make(chan string, 10)
	logger := funcr.New(func(_, line string) { logged <- line }, funcr.Options{})
	base.Evaluator.DryRun = evaluation.NewDryRunQueue(evaluation.NewSlots(1), logger)

	mutator := &pod.Mutator{Base: base}
	response := mutator.Handle(t.Context(), trainingRequest(t, 1, 1, "anna"))
	if !response.Allowed || strings.Contains(string(response.Patch), "trial") || len(response.Warnings) > 0 {
		t.Errorf("allowed %v with %v, patch %s", response.Allowed, response.Warnings, response.Patch)
	}
	if len(logged) > 0 {
		t.Errorf("evaluated before the answer: %s", <-logged)
	}
	go func() { _ = base.Evaluator.DryRun.Start(t.Context()) }()
	select {
	case line := <-logged:
		for _, want := range []string{`"deniedBy"=["trial"]`, `"changedBy"=["trial"]`, "too many variables", `"project"="thesis"`} {
			if !strings.Contains(line, want) {
				t.Errorf("no %s in %s", want, line)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("not evaluated")
	}
}
