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
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// counted returns what a base counted, by policy.
func counted(base evaluation.Base) map[string]replica.Total {
	set, _ := base.Evaluator.Engine.Current()
	text, _ := base.Evaluator.Counter.Report(set.Versions())
	reported, _ := replica.Decode(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text}}})
	all := map[string]replica.Total{}
	for i := range reported {
		all[reported[i].Policy] = replica.Sum([][]replica.Counts{reported}, reported[i].Version, time.Now())
	}
	return all
}

// counts is the violations and the number of examples by policy.
func counts(base evaluation.Base) map[string]string {
	all := map[string]string{}
	for policy, total := range counted(base) {
		all[policy] = fmt.Sprintf("%v, %d examples", total.Violations, len(total.Examples))
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
	const three = "map[thesis:3], 1 examples"
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
	want["warns"], want["tries"] = "map[thesis:4], 1 examples", "map[thesis:4], 1 examples"
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
		if got := counts(base)["denies"]; got != "map[thesis:1], 1 examples" {
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
	var got map[string]replica.Total
	for deadline := time.Now().Add(time.Minute); len(got) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got = counted(base)
	}
	if len(got) != 1 {
		t.Fatalf("violations: %+v", got)
	}
	want := []v1alpha1.PolicyExample{{
		Project: "thesis", Kind: "Pod", Namespace: "thesis", Name: "train-1-*", User: "anna",
		Message: "bad *** in main", Changes: []string{"metadata.labels[by]"},
	}}
	if diff := cmp.Diff(want, got["tries"].Examples, cmpopts.IgnoreFields(v1alpha1.PolicyExample{}, "Time")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
