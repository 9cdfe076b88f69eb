// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// BenchmarkAdmission measures one admission with the built-in policies, from the request's bytes to the response's,
// and compares it with a handler that decodes and allows the pod. The handlers alternate within one run, so that the
// ratios hold on a noisy machine. The Validator gets the pod that the Mutator patched.
func BenchmarkAdmission(b *testing.B) {
	base := newBase(b)
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		// The response cache has the response of all pods but the first.
		{"OneController", func(i int) []byte { return trainingReview(b, 0, i) }},
		// No response is cached, but the results of all policies are.
		{"AllDifferent", func(i int) []byte { return trainingReview(b, i, i) }},
		// No result of a policy that reads the containers is cached.
		{"NothingAlike", func(i int) []byte { return distinctReview(b, i) }},
	}
	for _, corpus := range corpora {
		b.Run(corpus.name, func(b *testing.B) {
			mutator := &admission.Webhook{Handler: &pod.Mutator{Base: base}}
			validator := &admission.Webhook{Handler: &pod.Validator{Base: base}}
			baseline := &admission.Webhook{Handler: admission.HandlerFunc(decodeAndAllow)}
			var mutating, validating, decoding time.Duration
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				b.StopTimer()
				raw := corpus.body(next)
				next++
				took, _ := serveTimed(b, baseline, raw)
				decoding += took
				b.StartTimer()
				took, response := serveTimed(b, mutator, raw)
				mutating += took
				b.StopTimer()
				took, _ = serveTimed(b, validator, patchedReview(b, raw, response))
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

// serveTimed calls a webhook and fails if it denies the pod.
func serveTimed(tb testing.TB, handler http.Handler, raw []byte) (time.Duration, *admissionv1.AdmissionResponse) {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(raw))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	start := policytime.MachineNow()
	handler.ServeHTTP(recorder, request)
	took := policytime.MachineNow().Sub(start)
	var response admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &response); err != nil || !response.Response.Allowed {
		tb.Fatalf("%d %v: %s", recorder.Code, err, recorder.Body)
	}
	return took, response.Response
}

// patchedReview returns the review of the patched pod, with the fields that the API server generates between the two
// webhooks.
func patchedReview(tb testing.TB, raw []byte, response *admissionv1.AdmissionResponse) []byte {
	tb.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &review); err != nil {
		tb.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		tb.Fatal(err)
	}
	if review.Request.Object.Raw, err = patch.Apply(review.Request.Object.Raw); err != nil {
		tb.Fatal(err)
	}
	if review.Request.Object.Raw, err = persistedPod(review.Request); err != nil {
		tb.Fatal(err)
	}
	after, err := json.Marshal(&review)
	if err != nil {
		tb.Fatal(err)
	}
	return after
}

// persistedPod returns the pod of a request with its name, UID and creation time. It sets the request's name as well.
func persistedPod(request *admissionv1.AdmissionRequest) ([]byte, error) {
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

// teamRules are typical rules of platform teams. Half of them iterate over the containers.
var teamRules = []string{
	`deny contains sprintf("container %s: image %s is not from here", [c.name, c.image]) if {
		some c in input.object.spec.containers
		not startswith(c.image, "registry.example.org/")
	}`,
	`deny contains {"msg": sprintf("the label %s is missing", [name]), "field": "metadata.labels"} if {
		some name in {"app", "run"}
		not input.object.metadata.labels[name]
	}`,
	`deny contains sprintf("container %s has no limit for %s", [c.name, kind]) if {
		some c in input.object.spec.containers
		some kind in ["cpu", "memory"]
		not c.resources.limits[kind]
	}`,
	`deny contains "not on the host's network" if input.object.spec.hostNetwork`,
	`warn contains sprintf("container %s sets %s itself", [c.name, e.name]) if {
		some c in input.object.spec.containers
		some e in c.env
		startswith(e.name, "NCCL_")
	}`,
	`deny contains "request at most 4 GPUs" if input.workload.devices > 4`,
}

// teamPolicies returns policies so that the total with the built-in ones is as given.
func teamPolicies(total int) []engine.Source {
	var sources []engine.Source
	for i := range total - len(policies.BuiltIn()) {
		sources = append(sources, engine.Source{
			Name: fmt.Sprintf("team-%d", i),
			Rego: fmt.Sprintf("package team_%d\n%s\n# %d", i, teamRules[i%len(teamRules)], i),
		})
	}
	return sources
}

// BenchmarkTailLatency measures the latency of admissions with 50 policies while they keep all processors busy: the
// median and the 99th percentile. A handler that decodes and allows the pod alternates with them and shows the
// machine's part.
func BenchmarkTailLatency(b *testing.B) {
	base := newBase(b, teamPolicies(50)...)
	base.Evaluator.Slots = evaluation.NewSlots(runtime.GOMAXPROCS(0))
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		{"AllDifferent", func(i int) []byte { return trainingReview(b, i, i) }},
		{"NothingAlike", func(i int) []byte { return distinctReview(b, i) }},
	}
	// No cache holds that many.
	const many = 2500
	for _, corpus := range corpora {
		before, after := make([][]byte, many), make([][]byte, many)
		mutator := &admission.Webhook{Handler: &pod.Mutator{Base: base}}
		for i := range many {
			before[i] = corpus.body(i)
			_, response := serveTimed(b, mutator, before[i])
			after[i] = patchedReview(b, before[i], response)
		}
		b.Run(corpus.name+"/mutating", func(b *testing.B) { measureTailLatency(b, mutator, before) })
		b.Run(corpus.name+"/validating", func(b *testing.B) {
			measureTailLatency(b, &admission.Webhook{Handler: &pod.Validator{Base: base}}, after)
		})
	}
}

func measureTailLatency(b *testing.B, handler http.Handler, bodies [][]byte) {
	b.Helper()
	baseline := &admission.Webhook{Handler: admission.HandlerFunc(decodeAndAllow)}
	var (
		mu           sync.Mutex
		all, machine []time.Duration
		goroutines   int
	)
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		// Each goroutine starts at another body.
		next := goroutines * len(bodies) / runtime.GOMAXPROCS(0)
		goroutines++
		mu.Unlock()
		var handled, baselines []time.Duration
		for pb.Next() {
			body := bodies[next%len(bodies)]
			next++
			took, _ := serveTimed(b, handler, body)
			handled = append(handled, took)
			took, _ = serveTimed(b, baseline, body)
			baselines = append(baselines, took)
		}
		mu.Lock()
		all, machine = append(all, handled...), append(machine, baselines...)
		mu.Unlock()
	})
	if b.Failed() {
		return
	}
	b.ReportMetric(0, "ns/op") // the sum of both handlers is meaningless
	b.ReportMetric(percentileMilliseconds(all, 0.5), "ms-p50")
	b.ReportMetric(percentileMilliseconds(all, 0.99), "ms-p99")
	b.ReportMetric(percentileMilliseconds(machine, 0.5), "ms-decode-and-allow-p50")
	b.ReportMetric(percentileMilliseconds(machine, 0.99), "ms-decode-and-allow-p99")
}

// percentileMilliseconds returns the duration that the share of the times does not exceed.
func percentileMilliseconds(times []time.Duration, share float64) float64 {
	slices.Sort(times)
	return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
}
