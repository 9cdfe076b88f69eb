// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
	"sluice.dev/webhook/pods"
)

// BenchmarkAdmission measures one admission, from the request's bytes to the
// answer's, with the built-in policies, against a handler that decodes the pod
// and allows it. All take turns in one run, so that the ratios hold on a noisy
// machine. What is validated is the pod as it was mutated.
func BenchmarkAdmission(b *testing.B) {
	desk := newDesk(b)
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		// All but the first are known.
		{"OneController", func(i int) []byte { return review(b, 0, i) }},
		// No pod is known, and all answers of the policies are.
		{"AllDifferent", func(i int) []byte { return review(b, i, i) }},
		// No answer of a policy that reads the containers is known.
		{"NothingAlike", func(i int) []byte { return unlike(b, i) }},
	}
	for _, corpus := range corpora {
		b.Run(corpus.name, func(b *testing.B) {
			mutator := &admission.Webhook{Handler: &pods.Mutator{Desk: desk}}
			validator := &admission.Webhook{Handler: &pods.Validator{Desk: desk}}
			baseline := &admission.Webhook{Handler: admission.HandlerFunc(decodeAndAllow)}
			var mutating, validating, decoding time.Duration
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				b.StopTimer()
				raw := corpus.body(next)
				next++
				took, _ := timed(b, baseline, raw)
				decoding += took
				b.StartTimer()
				took, answer := timed(b, mutator, raw)
				mutating += took
				b.StopTimer()
				took, _ = timed(b, validator, patched(b, raw, answer))
				validating += took
				b.StartTimer()
			}
			b.ReportMetric(float64(decoding.Microseconds())/float64(next), "µs-decode-and-allow/op")
			b.ReportMetric(float64(mutating.Microseconds())/float64(next), "µs-mutate/op")
			b.ReportMetric(float64(validating.Microseconds())/float64(next), "µs-validate/op")
			b.ReportMetric(float64(mutating)/float64(decoding), "x-mutate")
			b.ReportMetric(float64(validating)/float64(decoding), "x-validate")
		})
	}
}

// timed asks a webhook, and refuses to measure refusals.
func timed(tb testing.TB, handler http.Handler, raw []byte) (time.Duration, *admissionv1.AdmissionResponse) {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(raw))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	start := clock.MachineNow()
	handler.ServeHTTP(recorder, request)
	took := clock.MachineNow().Sub(start)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || !answer.Response.Allowed {
		tb.Fatalf("%d %v: %s", recorder.Code, err, recorder.Body)
	}
	return took, answer.Response
}

// patched is the review of the pod as an answer changed it, and with what the API
// server makes up for each pod between the two.
func patched(tb testing.TB, raw []byte, answer *admissionv1.AdmissionResponse) []byte {
	tb.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &review); err != nil {
		tb.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		tb.Fatal(err)
	}
	if review.Request.Object.Raw, err = patch.Apply(review.Request.Object.Raw); err != nil {
		tb.Fatal(err)
	}
	if review.Request.Object.Raw, err = stored(review.Request); err != nil {
		tb.Fatal(err)
	}
	after, err := json.Marshal(&review)
	if err != nil {
		tb.Fatal(err)
	}
	return after
}

// stored is the pod of a request with what tells it apart once it is stored. Its
// name is the request's too.
func stored(request *admissionv1.AdmissionRequest) ([]byte, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	number := string(request.UID[len(request.UID)-5:])
	pod.Name, request.Name = pod.GenerateName+number, pod.GenerateName+number
	pod.UID = "11111111" + request.UID[8:]
	pod.CreationTimestamp = metav1.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return json.Marshal(&pod)
}

func decodeAndAllow(_ context.Context, req admission.Request) admission.Response {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return admission.Allowed("")
}
