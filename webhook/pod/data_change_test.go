// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

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

// A change of the data between the two phases of a pod's admission refuses no pod wrongly, in whatever order two
// replicas learn of it, and the former data is kept for half a minute at most. Guards invariant 4 of the design.
func TestDataChangeRefusesNobodyWrongly(t *testing.T) {
	reader := engine.Source{Name: "team", Rego: "package team\noverrides := {\"metadata\": {\"labels\": {\"team\": data.config.team.name}}}"}
	synctest.Test(t, func(t *testing.T) {
		early, late := newBase(t), newBase(t)
		for _, replica := range []evaluation.Base{early, late} {
			setPolicies(t, replica, reader)
			setTeam(t, replica, "vision")
		}
		handle := func(replica evaluation.Base, request admission.Request) string {
			t.Helper()
			response := (&pod.Validator{Base: replica}).Handle(t.Context(), request)
			if response.Allowed {
				return ""
			}
			return response.Result.Message
		}
		before := mutated(t, early, 1)
		if !strings.Contains(string(before.Object.Raw), `"team":"vision"`) {
			t.Errorf("the pod is not mutated with the data: %s", before.Object.Raw)
		}
		setTeam(t, early, "speech")
		if message := handle(early, before); message != "" {
			t.Errorf("mutated with the former data: %s", message)
		}
		after := mutated(t, early, 2)
		go func() {
			time.Sleep(300 * time.Millisecond)
			setTeam(t, late, "something else")
			time.Sleep(300 * time.Millisecond)
			setTeam(t, late, "speech")
		}()
		if message := handle(late, after); message != "" {
			t.Errorf("mutated by a replica that knew a change earlier: %s", message)
		}
		// Objects can change once in a second.
		for second := range 29 {
			setTeam(t, early, fmt.Sprint("second-", second))
			time.Sleep(time.Second)
		}
		if message := handle(early, after); message != "" {
			t.Errorf("after 29 changes within 29 seconds: %s", message)
		}
		time.Sleep(2 * time.Second)
		if message := handle(early, after); !strings.Contains(message, "reverted what this policy requires") {
			t.Errorf("half a minute after the change: %q", message)
		}
	})
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
