// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// teamLabel is a policy that sets a label, and changes with each edit.
func teamLabel(value string) engine.Source {
	return engine.Source{Name: "team", Rego: fmt.Sprintf(`package team
overrides := {"metadata": {"labels": {"team": %q}}}`, value)}
}

// setPolicies makes the built-in policies and these the present ones.
func setPolicies(t *testing.T, base evaluation.Base, sources ...engine.Source) {
	t.Helper()
	for _, report := range base.Evaluator.Engine.Update(append(policies.BuiltIn(), sources...)) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
}

// mutated returns the request of the final phase for a pod that a replica mutated.
func mutated(t *testing.T, replica evaluation.Base, number int) admission.Request {
	t.Helper()
	raw := trainingReview(t, number, number)
	_, response := serveTimed(t, &admission.Webhook{Handler: &pod.Mutator{Base: replica}}, raw)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(patchedReview(t, raw, response), &review); err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: *review.Request}
}

// A change of a policy between the two phases of a pod's admission refuses no pod wrongly, in whatever order
// two replicas learn of it, and holds from half a minute later. Guards invariant 4 of the design.
func TestPolicyChangeRefusesNobodyWrongly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early, late := newBase(t), newBase(t)
		setPolicies(t, early, teamLabel("vision"))
		setPolicies(t, late, teamLabel("vision"))
		handle := func(replica evaluation.Base, request admission.Request) string {
			t.Helper()
			response := (&pod.Validator{Base: replica}).Handle(t.Context(), request)
			if response.Allowed {
				return ""
			}
			return response.Result.Message
		}
		before := mutated(t, early, 1)
		setPolicies(t, early, teamLabel("speech"))
		if message := handle(early, before); message != "" {
			t.Errorf("mutated under the former policies: %s", message)
		}
		after := mutated(t, early, 2)
		go func() {
			time.Sleep(500 * time.Millisecond)
			setPolicies(t, late, teamLabel("speech"))
		}()
		if message := handle(late, after); message != "" {
			t.Errorf("mutated by a replica that knew a change earlier: %s", message)
		}
		for edit := range 20 {
			setPolicies(t, early, teamLabel(fmt.Sprint("edit-", edit)))
			request := mutated(t, early, 3+edit)
			setPolicies(t, early, teamLabel(fmt.Sprint("edit-", edit, "b")))
			if message := handle(early, request); message != "" {
				t.Errorf("edit %d: %s", edit, message)
			}
		}
		if message := handle(early, before); !strings.Contains(message, "reverted what this policy requires: metadata.labels[team]") {
			t.Errorf("after more changes than are kept: %q", message)
		}
		request := mutated(t, early, 100)
		setPolicies(t, early, teamLabel("last"))
		time.Sleep(31 * time.Second)
		if message := handle(early, request); !strings.Contains(message, "reverted what this policy requires") {
			t.Errorf("half a minute after the change: %q", message)
		}
	})
}

// 48 edits of a policy under load refuse no pod: each is mutated by one replica and validated by another, which
// learns of each edit a moment later. Guards invariant 4 of the design.
func TestPolicyEditsUnderLoadRefuseNoPod(t *testing.T) {
	const edits, workers = 48, 4
	early, late := newBase(t), newBase(t)
	setPolicies(t, early, teamLabel("edit-0"))
	setPolicies(t, late, teamLabel("edit-0"))
	admitted := make([]chan string, workers)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for worker := range workers {
		admitted[worker] = make(chan string)
		load.Go(func() {
			mutator, validator := &pod.Mutator{Base: early}, &pod.Validator{Base: late}
			for number := worker; ctx.Err() == nil; number += workers {
				request := decodeRequest(t, trainingReview(t, number, number))
				response, message := mutator.Handle(ctx, request), ""
				if response.Allowed {
					request.Object.Raw = applyPatch(t, request.Object.Raw, response)
					response = validator.Handle(ctx, request)
				}
				if !response.Allowed {
					message = response.Result.Message
				}
				select {
				case admitted[worker] <- message:
				case <-ctx.Done():
				}
			}
		})
	}
	refused := 0
	for edit := range edits {
		setPolicies(t, early, teamLabel(fmt.Sprint("edit-", edit)))
		setPolicies(t, late, teamLabel(fmt.Sprint("edit-", edit)))
		for worker := range workers { // no pod lasts longer than the kept sets
			if message := <-admitted[worker]; message != "" {
				refused++
				t.Error(message)
			}
		}
	}
	stop()
	load.Wait()
	if refused > 0 {
		t.Errorf("%d of %d pods were refused during %d edits", refused, edits*workers, edits)
	}
}
