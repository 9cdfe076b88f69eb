// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// setTeam sets data.config.team.name of a replica.
func setTeam(t *testing.T, replica evaluation.Base, name string) {
	t.Helper()
	config, err := engine.NewConfigData("team", map[string]any{"name": name})
	if err != nil {
		t.Fatal(err)
	}
	replica.Evaluator.Engine.UpdateData(engine.NewData([]engine.ConfigData{config}, nil))
}

// A cached response is not used again after a change of the data that a policy read.
func TestCachedResponsesDependOnData(t *testing.T) {
	base := newBase(t)
	setPolicies(t, base, engine.Source{Name: "team", Rego: "package team\nwarn contains data.config.team.name"})
	setTeam(t, base, "vision")
	mutator := &pod.Mutator{Base: base}
	warning := func() string {
		response := mutator.Handle(t.Context(), decodeRequest(t, trainingReview(t, 1, 1)))
		return strings.Join(response.Warnings, " ")
	}
	if got := warning(); !strings.Contains(got, "vision") {
		t.Errorf("warnings %q, want the data", got)
	}
	setTeam(t, base, "speech")
	if got := warning(); !strings.Contains(got, "speech") {
		t.Errorf("warnings %q, want the changed data", got)
	}
	base.Evaluator.Engine.UpdateData(engine.NewData(nil, nil))
	response := mutator.Handle(t.Context(), decodeRequest(t, trainingReview(t, 1, 1)))
	if response.Allowed || !strings.Contains(response.Result.Message, "data.config.team does not exist") {
		t.Errorf("without the data: %+v", response.Result)
	}
}
