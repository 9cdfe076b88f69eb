// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
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

// What a pod is evaluated under may change between the two phases of its admission, in whatever order two replicas learn of it: the
// client sends the pod again, which is admitted then. Guards invariant 4 of the design.
func TestChangesBetweenPhasesRefuseNobodyWrongly(t *testing.T) {
	reader := engine.Source{Name: "data", Rego: "package data_reader\noverrides := {\"metadata\": {\"labels\": {\"member\": data.config.team.name}}}"}
	for what, change := range map[string]func(*testing.T, evaluation.Base, *fakeReader){
		"a policy": func(t *testing.T, base evaluation.Base, _ *fakeReader) {
			setPolicies(t, base, reader, teamLabel("speech"))
		},
		"data of a policy": func(t *testing.T, base evaluation.Base, _ *fakeReader) { setTeam(t, base, "speech") },
		"a pool's node selector": func(_ *testing.T, _ evaluation.Base, cluster *fakeReader) {
			for _, pool := range cluster.pools {
				pool.Spec.NodeSelector, pool.ResourceVersion = map[string]string{"sluice.dev/node-pool": "other"}, "2"
			}
		},
		"a project's department": func(_ *testing.T, _ evaluation.Base, cluster *fakeReader) {
			cluster.projects[0].Spec.Department, cluster.department.Name = "staff", "staff"
			cluster.projects[0].ResourceVersion, cluster.department.ResourceVersion = "2", "2"
		},
	} {
		t.Run(what, func(t *testing.T) {
			before, after, cluster := newBase(t), newBase(t), newFakeReader()
			after.Tenants = &evaluation.TenantResolver{Cache: cluster}
			for _, base := range []evaluation.Base{before, after} {
				setPolicies(t, base, reader, teamLabel("vision"))
				setTeam(t, base, "vision")
			}
			change(t, after, cluster)
			for one, bases := range map[string][2]evaluation.Base{"later": {before, after}, "earlier": {after, before}} {
				request := mutated(t, bases[0], 1)
				for user, isRepeated := range map[string]bool{"anna": true, "system:serviceaccount:kube-system:job-controller": false} {
					request.UserInfo.Username = user
					response := (&pod.Validator{Base: bases[1]}).Handle(t.Context(), request)
					if response.Allowed || response.Result.Code != http.StatusTooManyRequests || !strings.Contains(response.Result.Message, "try again in a moment") {
						t.Errorf("validated %s, %s: %v, want a request to try again", one, user, response.Result)
					} else if got := response.Result.Details != nil && response.Result.Details.RetryAfterSeconds == 1; got != isRepeated {
						t.Errorf("validated %s: Retry-After %v for %s", one, got, user)
					}
				}
				response := (&pod.Validator{Base: bases[1]}).Handle(t.Context(), mutated(t, bases[1], 1))
				if !response.Allowed {
					t.Errorf("validated %s, sent again: %v", one, response.Result)
				}
			}
		})
	}
}

// A denial is the author's unless the Mutator allowed the pod under something else: also that of the Mutator, called again, but not that
// of a pod with a stamp of its author or without any.
func TestWhoIsBlamedForADenial(t *testing.T) {
	former, present := newBase(t, teamLabel("former")), newBase(t, teamLabel("present"))
	deny := engine.Source{Name: "deny", Rego: "package deny\ndeny contains \"no\" if input.object.metadata.labels.team"}
	denying := newBase(t, teamLabel("former"), deny)
	quiet := newBase(t, teamLabel("former"), engine.Source{Name: "quiet", Rego: "package quiet\nwarn contains \"no\" if input.object.metadata.labels.other"})
	withStamp := func(request admission.Request, value string) admission.Request {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationEvaluatedUnder, value)
		raw, err := jsonpatch.MergePatch(request.Object.Raw, []byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		request.Object.Raw = raw
		return request
	}
	validate := func(base evaluation.Base) func(admission.Request) admission.Response {
		return func(request admission.Request) admission.Response {
			return (&pod.Validator{Base: base}).Handle(t.Context(), request)
		}
	}
	mutate := func(base evaluation.Base) func(admission.Request) admission.Response {
		return func(request admission.Request) admission.Response {
			return (&pod.Mutator{Base: base}).Handle(t.Context(), request)
		}
	}
	unknown := newBase(t)
	unknown.Tenants = &evaluation.TenantResolver{Cache: &fakeReader{}}
	reverted := func(request admission.Request) admission.Request {
		raw, err := jsonpatch.MergePatch(request.Object.Raw, []byte(`{"metadata":{"labels":{"team":"mine"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Object.Raw = raw
		return request
	}
	pods := mutated(t, former, 1)
	for what, tt := range map[string]struct {
		handle  func(admission.Request) admission.Response
		request admission.Request
		code    int32
	}{
		"mutated under others":                         {validate(present), pods, http.StatusTooManyRequests},
		"mutated under these":                          {validate(former), pods, http.StatusOK},
		"mutated under these, and reverted":            {validate(former), reverted(pods), http.StatusForbidden},
		"mutated under these and others, and reverted": {validate(quiet), reverted(mutatedAgain(t, pods, quiet)), http.StatusTooManyRequests},
		"no stamp":                                  {validate(present), withStamp(pods, "null"), http.StatusForbidden},
		"a mutator's denial when called again":      {mutate(denying), pods, http.StatusTooManyRequests},
		"a mutator's change when called again":      {mutate(present), pods, http.StatusTooManyRequests},
		"called again without a change":             {mutate(quiet), pods, http.StatusOK},
		"a project that this replica does not know": {validate(unknown), pods, http.StatusTooManyRequests},
		"no stamp, and no project":                  {validate(unknown), withStamp(pods, "null"), http.StatusForbidden},
		"a mutator's denial of a copied stamp": {func(r admission.Request) admission.Response {
			r.Object.Raw = applyPatch(t, r.Object.Raw, pod.DecisionsRemover{}.Handle(t.Context(), r))
			return (&pod.Mutator{Base: denying}).Handle(t.Context(), r)
		}, pods, http.StatusForbidden},
	} {
		response := tt.handle(tt.request)
		if code := response.Result.Code; code != tt.code {
			t.Errorf("%s: %d %s, want %d", what, code, response.Result.Message, tt.code)
		}
	}
}

// Requests to send a pod again count as no violation, and none is answered from the cache.
func TestRetriesAreNoViolations(t *testing.T) {
	former := newBase(t, teamLabel("former"))
	denying := newBase(t, teamLabel("former"), engine.Source{Name: "deny", Rego: "package deny\ndeny contains \"no\" if input.object.metadata.labels.team"})
	denying.Evaluator.Counter = &replica.Counter{}
	validator, request := &pod.Validator{Base: denying}, mutated(t, former, 1)
	for want, code := range []int32{http.StatusTooManyRequests, http.StatusForbidden, http.StatusTooManyRequests} {
		current := request
		if code == http.StatusForbidden {
			current.Object.Raw = bytes.Replace(request.Object.Raw, []byte(v1alpha1.AnnotationEvaluatedUnder), []byte("example.org/other"), 1)
		}
		if got := validator.Handle(t.Context(), current).Result; got.Code != code {
			t.Errorf("%d %s, want %d", got.Code, got.Message, code)
		}
		if counted := counts(denying); len(counted) != min(want, 1) {
			t.Errorf("after %d: counted %v", code, counted)
		}
	}
}

// mutatedAgain returns the request after another call of the Mutator, under something else.
func mutatedAgain(t *testing.T, request admission.Request, base evaluation.Base) admission.Request {
	t.Helper()
	request.Object.Raw = applyPatch(t, request.Object.Raw, (&pod.Mutator{Base: base}).Handle(t.Context(), request))
	return request
}

// 48 edits of a policy under load refuse no pod: each is mutated by one replica and validated by another, which
// learns of each edit a moment later, and its client sends it again if it is asked to. Guards invariant 4 of the design.
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
				var response admission.Response
				message := ""
				for again := true; again && ctx.Err() == nil; again = !response.Allowed && response.Result.Code == http.StatusTooManyRequests {
					request := decodeRequest(t, trainingReview(t, number, number))
					if response = mutator.Handle(ctx, request); response.Allowed {
						request.Object.Raw = applyPatch(t, request.Object.Raw, response)
						response = validator.Handle(ctx, request)
					}
				}
				if !response.Allowed && ctx.Err() == nil {
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
		for worker := range workers {
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
