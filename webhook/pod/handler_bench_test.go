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

	"github.com/evanphx/json-patch/v5"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/pod"
)

// BenchmarkAdmission measures one admission, from the request's bytes to the
// answer's, with the built-in policies, against a handler that decodes the pod
// and allows it. All take turns in one run, so that the ratios hold on a noisy
// machine. What is validated is the pod as it was mutated.
func BenchmarkAdmission(b *testing.B) {
	desk := newBase(b)
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		// All but the first are known.
		{"OneController", func(i int) []byte { return trainingReview(b, 0, i) }},
		// No pod is known, and all answers of the policies are.
		{"AllDifferent", func(i int) []byte { return trainingReview(b, i, i) }},
		// No answer of a policy that reads the containers is known.
		{"NothingAlike", func(i int) []byte { return distinctReview(b, i) }},
	}
	for _, corpus := range corpora {
		b.Run(corpus.name, func(b *testing.B) {
			mutator := &admission.Webhook{Handler: &pod.Mutator{Base: desk}}
			validator := &admission.Webhook{Handler: &pod.Validator{Base: desk}}
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
				took, answer := serveTimed(b, mutator, raw)
				mutating += took
				b.StopTimer()
				took, _ = serveTimed(b, validator, patchedReview(b, raw, answer))
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

// serveTimed asks a webhook, and refuses to measure refusals.
func serveTimed(tb testing.TB, handler http.Handler, raw []byte) (time.Duration, *admissionv1.AdmissionResponse) {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(raw))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	start := policytime.MachineNow()
	handler.ServeHTTP(recorder, request)
	took := policytime.MachineNow().Sub(start)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || !answer.Response.Allowed {
		tb.Fatalf("%d %v: %s", recorder.Code, err, recorder.Body)
	}
	return took, answer.Response
}

// patchedReview is the review of the pod as an answer changed it, and with what the API
// server makes up for each pod between the two.
func patchedReview(tb testing.TB, raw []byte, answer *admissionv1.AdmissionResponse) []byte {
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
	if review.Request.Object.Raw, err = persistedPod(review.Request); err != nil {
		tb.Fatal(err)
	}
	after, err := json.Marshal(&review)
	if err != nil {
		tb.Fatal(err)
	}
	return after
}

// persistedPod is the pod of a request with what tells it apart once it is stored. Its
// name is the request's too.
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

// teamRules are rules as teams write them. Half of them go through the containers.
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
	`deny contains "ask for at most 4 GPUs" if input.workload.devices > 4`,
}

// teamPolicies fill the built-in ones up to a number.
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

// BenchmarkTailLatency measures how long admissions take with 50 policies while all
// processors are busy with them: the median, and what one of a hundred exceeds. A
// handler that decodes the pod and allows it takes turns with them, and tells what
// of that is the machine's.
func BenchmarkTailLatency(b *testing.B) {
	desk := newBase(b, teamPolicies(50)...)
	desk.Evaluator.WorkerSlots = semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		{"AllDifferent", func(i int) []byte { return trainingReview(b, i, i) }},
		{"NothingAlike", func(i int) []byte { return distinctReview(b, i) }},
	}
	// More than any memory keeps.
	const many = 2500
	for _, corpus := range corpora {
		before, after := make([][]byte, many), make([][]byte, many)
		mutator := &admission.Webhook{Handler: &pod.Mutator{Base: desk}}
		for i := range many {
			before[i] = corpus.body(i)
			_, answer := serveTimed(b, mutator, before[i])
			after[i] = patchedReview(b, before[i], answer)
		}
		b.Run(corpus.name+"/mutating", func(b *testing.B) { measureTailLatency(b, mutator, before) })
		b.Run(corpus.name+"/validating", func(b *testing.B) {
			measureTailLatency(b, &admission.Webhook{Handler: &pod.Validator{Base: desk}}, after)
		})
	}
}

func measureTailLatency(b *testing.B, handler http.Handler, bodies [][]byte) {
	b.Helper()
	baseline := &admission.Webhook{Handler: admission.HandlerFunc(decodeAndAllow)}
	var (
		mu           sync.Mutex
		all, machine []time.Duration
		turns        int
	)
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		// Each goroutine has its own stretch of the bodies.
		next := turns * len(bodies) / runtime.GOMAXPROCS(0)
		turns++
		mu.Unlock()
		var mine, its []time.Duration
		for pb.Next() {
			body := bodies[next%len(bodies)]
			next++
			took, _ := serveTimed(b, handler, body)
			mine = append(mine, took)
			took, _ = serveTimed(b, baseline, body)
			its = append(its, took)
		}
		mu.Lock()
		all, machine = append(all, mine...), append(machine, its...)
		mu.Unlock()
	})
	if b.Failed() {
		return
	}
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(percentileMilliseconds(all, 0.5), "ms-p50")
	b.ReportMetric(percentileMilliseconds(all, 0.99), "ms-p99")
	b.ReportMetric(percentileMilliseconds(machine, 0.5), "ms-decode-and-allow-p50")
	b.ReportMetric(percentileMilliseconds(machine, 0.99), "ms-decode-and-allow-p99")
}

// percentileMilliseconds is what a share of the times does not exceed.
func percentileMilliseconds(times []time.Duration, share float64) float64 {
	slices.Sort(times)
	return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
}
