// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// A pod in Kueue's pool has Kueue's scheduling gate, or belongs to a workload that Kueue suspends. Only the Validator
// checks that, so that the order of the mutating webhooks does not matter.
func TestKueuePodsRequireSchedulingGate(t *testing.T) {
	cluster := newFakeReader()
	for _, pool := range cluster.pools {
		pool.Spec.Scheduler = v1alpha1.SchedulerKueue
	}
	base := newBase(t)
	base.Tenants = &evaluation.TenantResolver{Cache: cluster}
	mutator, validator := &pod.Mutator{Base: base}, &pod.Validator{Base: base}
	const (
		gpu   = `containers: [{name: main, image: x, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]`
		owned = `metadata: {ownerReferences: [{apiVersion: `
	)
	for name, tc := range map[string]struct{ pod, wantDenial string }{
		"without a gate":                {`{spec: {` + gpu + `}}`, "Kueue's webhook did not process the pod"},
		"with another":                  {`{spec: {schedulingGates: [{name: mine}], ` + gpu + `}}`, "the scheduling gate mine keeps the pod from starting"},
		"of a Deployment":               {`{` + owned + `apps/v1, kind: ReplicaSet, name: a, uid: u, controller: true}]}, spec: {` + gpu + `}}`, "Kueue's webhook did not process the pod"},
		"in order: with the gate":       {`{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}, {name: kueue.x-k8s.io/topology}], ` + gpu + `}}`, ""},
		"in order: of a Job":            {`{` + owned + `batch/v1, kind: Job, name: a, uid: u, controller: true}]}, spec: {` + gpu + `}}`, ""},
		"in order: without a GPU":       {`{spec: {containers: [{name: main, image: x}]}}`, ""},
		"the queue of another project":  {`{metadata: {labels: {kueue.x-k8s.io/queue-name: other}}, spec: {containers: [{name: main, image: x}]}}`, "queue other does not belong to project thesis"},
		"in order: the project's queue": {`{metadata: {labels: {kueue.x-k8s.io/queue-name: default}}, spec: {containers: [{name: main, image: x}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(tc.pod))
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "thesis", Object: runtime.RawExtension{Raw: raw},
				Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			}}
			request.UserInfo.Username = "anna"
			response := mutator.Handle(t.Context(), request)
			if response.Allowed {
				steps, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if request.Object.Raw, err = steps.Apply(raw); err != nil {
					t.Fatal(err)
				}
				response = validator.Handle(t.Context(), request)
			} else if strings.Contains(response.Result.Message, "did not process") {
				t.Errorf("the Mutator denied the pod before Kueue's webhook could change it: %s", response.Result.Message)
			}
			if response.Allowed != (tc.wantDenial == "") || (tc.wantDenial != "" && !strings.Contains(response.Result.Message, tc.wantDenial)) {
				t.Errorf("%v, want %q", response.Result, tc.wantDenial)
			}
		})
	}
}

func trainingRequest(t *testing.T, number, request int, user string) admission.Request {
	t.Helper()
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(trainingReview(t, number, request), &decoded); err != nil {
		t.Fatal(err)
	}
	decoded.Request.UserInfo.Username = user
	return admission.Request{AdmissionRequest: *decoded.Request}
}

// Invariant: the same pod, project, policies and time give the same patch, byte for byte, cached or not.
func TestCachedResponsesMatchEvaluation(t *testing.T) {
	evaluations := 0
	policyEngine, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: limits, Observe: func(engine.Evaluation) { evaluations++ }})
	if err != nil {
		t.Fatal(err)
	}
	policyEngine.Update(policies.BuiltIn())
	base := newBase(t)
	base.Evaluator.Engine = policyEngine
	mutator := &pod.Mutator{Base: base}
	handle := func(number, request int, user string) (string, bool) {
		before := evaluations
		response := mutator.Handle(t.Context(), trainingRequest(t, number, request, user))
		if !response.Allowed {
			t.Fatal(response.Result.Message)
		}
		return string(response.Patch), evaluations > before
	}
	first, evaluated := handle(1, 1, "anna")
	if !evaluated || !strings.Contains(first, `created-by","value":"anna"`) {
		t.Fatalf("evaluated %v: %s", evaluated, first)
	}
	if second, evaluated := handle(1, 2, "anna"); evaluated || second != first {
		t.Errorf("the same pod a second later: evaluated %v, %s", evaluated, second)
	}
	if other, evaluated := handle(1, 1, "ben"); !evaluated || !strings.Contains(other, `created-by","value":"ben"`) {
		t.Errorf("the same pod of another user: evaluated %v, %s", evaluated, other)
	}
	if _, evaluated := handle(2, 1, "anna"); !evaluated {
		t.Error("another pod was not evaluated")
	}
	team := engine.Source{Name: "team", Rego: "package team\noverrides := {\"metadata\": {\"labels\": {\"team\": \"vision\"}}}"}
	policyEngine.Update(append(policies.BuiltIn(), team))
	if other, evaluated := handle(1, 1, "anna"); !evaluated || !strings.Contains(other, `team","value":"vision"`) {
		t.Errorf("with other policies: evaluated %v, %s", evaluated, other)
	}
	team.Rego = "package team\ndeny contains \"late\" if input.now == \"never\""
	policyEngine.Update(append(policies.BuiltIn(), team))
	for range 2 {
		if _, evaluated := handle(1, 1, "anna"); !evaluated {
			t.Error("a policy reads the time, and was not evaluated")
		}
	}
}

func FuzzMutator(f *testing.F) {
	base := newBase(f)
	mutator, validator := &pod.Mutator{Base: base}, &pod.Validator{Base: base}
	for _, seed := range []string{`{}`, `null`, `{"metadata":{"managedFields":[]},"spec":{"containers":[{"name":"a","env":[{"name":"A"},{"name":"A"}]}]}}`, `{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":1e99}}}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req admission.Request
		req.Operation, req.Namespace, req.Object.Raw = admissionv1.Create, "thesis", raw
		// Any input has a response, and none causes a panic.
		mutator.Handle(t.Context(), req)
		validator.Handle(t.Context(), req)
	})
}
