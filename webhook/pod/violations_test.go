// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// countedPolicies are a policy for each enforcement. All of them find fault with pods of the image bad.
func countedPolicies() []engine.Source {
	var sources []engine.Source
	for name, enforcement := range map[string]v1alpha1.Enforcement{
		"denies": v1alpha1.EnforcementDeny, "warns": v1alpha1.EnforcementWarn, "tries": v1alpha1.EnforcementDryRun,
	} {
		sources = append(sources, engine.Source{Name: name, Enforcement: enforcement, Generation: 2, Rego: fmt.Sprintf(`package %s
deny contains sprintf("bad %%s", [input.object.spec.containers[0].env[0].value]) if input.object.metadata.labels.bad == %q
warn contains "advice only"
overrides := {"metadata": {"labels": {"by": "x"}}} if input.object.metadata.labels.bad == "changed"`, name, name)})
	}
	return sources
}

// counts is the violations and the number of examples by policy.
func counts(base evaluation.Base) map[string]string {
	set, _ := base.Evaluator.Engine.Current()
	all := map[string]string{}
	for _, v := range base.Evaluator.Counter.Violations(set.Versions()) {
		all[v.Policy] = fmt.Sprintf("%d of %v, %d examples", v.Total, v.Projects, len(v.Examples))
	}
	return all
}

// Each object counts once for each policy that refuses it, or would in Warn or DryRun: also with a cached response, but not
// with dryRun, for a repeated call of the webhook, or in the final phase. Guards invariant 11 of the design.
func TestViolationsAreCountedOnce(t *testing.T) {
	base := newBase(t, countedPolicies()...)
	base.Evaluator.Counter = &replica.Counter{}
	base.Evaluator.DryRun = evaluation.NewDryRunQueue(evaluation.NewSlots(1), logr.Discard())
	go func() { _ = base.Evaluator.DryRun.Start(t.Context()) }()
	mutator, validator := &pod.Mutator{Base: base}, &pod.Validator{Base: base}
	request := func(bad string, number int) admission.Request {
		t.Helper()
		request := trainingRequest(t, 1, number, "anna")
		object, err := evaluation.DecodeObject(request.Object.Raw)
		if err != nil {
			t.Fatal(err)
		}
		object["metadata"].(map[string]any)["labels"].(map[string]any)["bad"] = bad
		if request.Object.Raw, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
		return request
	}
	wait := func(want map[string]string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for cmp.Diff(want, counts(base)) != "" && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if diff := cmp.Diff(want, counts(base)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
	const three = "3 of [{thesis 3}], 1 examples"
	for number := range 3 {
		for _, bad := range []string{"denies", "warns", "tries", "changed", "none"} {
			mutator.Handle(t.Context(), request(bad, number))
		}
	}
	want := map[string]string{"denies": three, "warns": three, "tries": three}
	wait(want)

	for _, bad := range []string{"denies", "warns", "tries"} {
		dryRun := request(bad, 5)
		dryRun.DryRun = new(bool)
		*dryRun.DryRun = true
		mutator.Handle(t.Context(), dryRun)
	}
	for _, bad := range []string{"warns", "tries"} {
		first := request(bad, 6)
		raw, err := json.Marshal(&admissionv1.AdmissionReview{Request: &first.AdmissionRequest})
		if err != nil {
			t.Fatal(err)
		}
		response := mutator.Handle(t.Context(), first)
		if err := response.Complete(first); err != nil {
			t.Fatal(err)
		}
		var repeated admissionv1.AdmissionReview
		if err := json.Unmarshal(patchedReview(t, raw, &response.AdmissionResponse), &repeated); err != nil {
			t.Fatal(err)
		}
		mutator.Handle(t.Context(), admission.Request{AdmissionRequest: *repeated.Request})
		if final := validator.Handle(t.Context(), admission.Request{AdmissionRequest: *repeated.Request}); !final.Allowed {
			t.Fatalf("final phase: %v", final.Result)
		}
	}
	want["warns"], want["tries"] = "4 of [{thesis 4}], 1 examples", "4 of [{thesis 4}], 1 examples"
	wait(want)
}

// A policy that is changed and changed back has a new generation and its former content, for which responses are cached.
// Their objects count for the new generation. Guards invariant 11 of the design.
func TestCachedResponsesCountForPresentGeneration(t *testing.T) {
	denies := engine.Source{Name: "denies", Generation: 1, Rego: `package denies
deny contains "bad"`}
	base := newBase(t)
	base.Evaluator.Counter = &replica.Counter{}
	mutator := &pod.Mutator{Base: base}
	for range 2 {
		setPolicies(t, base, denies)
		mutator.Handle(t.Context(), trainingRequest(t, 1, 1, "anna"))
		if got := counts(base)["denies"]; got != "1 of [{thesis 1}], 1 examples" {
			t.Errorf("generation %d: %s", denies.Generation, got)
		}
		changed := denies
		changed.Generation, changed.Enforcement = denies.Generation+1, v1alpha1.EnforcementWarn
		setPolicies(t, base, changed)
		denies.Generation += 2
	}
}

// An example says who and what, and what the policy would have changed, but no value of a variable. Guards the secrets of
// users, whom the administrators that read policies are not.
func TestExamplesHaveNoSecrets(t *testing.T) {
	base := newBase(t, engine.Source{
		Name: "tries", Enforcement: v1alpha1.EnforcementDryRun,
		Rego: `package tries
deny contains sprintf("bad %v in %s", [input.object.spec.containers[0].env[0].value, input.object.spec.containers[0].name])
overrides := {"metadata": {"labels": {"by": "x"}}}`,
	})
	base.Evaluator.Counter = &replica.Counter{}
	base.Evaluator.DryRun = evaluation.NewDryRunQueue(evaluation.NewSlots(1), logr.Discard())
	request := trainingRequest(t, 1, 1, "anna")
	(&pod.Mutator{Base: base}).Handle(t.Context(), request)
	go func() { _ = base.Evaluator.DryRun.Start(t.Context()) }()
	var got []replica.Violations
	set, _ := base.Evaluator.Engine.Current()
	for deadline := time.Now().Add(time.Minute); len(got) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got = base.Evaluator.Counter.Violations(set.Versions())
	}
	if len(got) != 1 {
		t.Fatalf("violations: %+v", got)
	}
	want := []v1alpha1.PolicyExample{{
		Project: "thesis", Kind: "Pod", Namespace: "thesis", Name: "train-1-*", User: "anna",
		Message: "bad *** in main", Changes: []string{"metadata.labels[by]"},
	}}
	if diff := cmp.Diff(want, got[0].Examples, cmpopts.IgnoreFields(v1alpha1.PolicyExample{}, "Time")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
