// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// BenchmarkOtherProjectsWorstPolicy measures the latency of one project's admissions, one after another, alone and
// while another project keeps its slots busy with pods on which a policy takes half of its limit of processor time. An
// operation is 400 admissions alone and 400 beside the other project; the figures are those of all operations together.
// The webhook runs with GOGC=400 and GOMEMLIMIT=320MiB: set both for its figures.
func BenchmarkOtherProjectsWorstPolicy(b *testing.B) {
	const admissions = 400
	base := newBase(b, engine.Source{
		Name: "worst", Match: v1alpha1.PolicyMatch{Projects: []string{"greedy"}},
		Rego: `package worst
deny contains input.object.metadata.name if { some a in numbers.range(1, 400); some b in numbers.range(1, 400); a + b < 0 }`,
	})
	base.Evaluator.Slots = evaluation.NewSlots(runtime.NumCPU())
	mutator := &admission.Webhook{Handler: &pod.Mutator{Base: base}}
	next := 0
	measure := func(took []time.Duration) []time.Duration {
		for range admissions {
			next++
			one, _ := serveTimed(b, mutator, trainingReview(b, next, next))
			took = append(took, one)
		}
		return took
	}
	var alone, beside []time.Duration
	var evaluated atomic.Int64
	for b.Loop() {
		alone = measure(alone)
		ctx, cancel := context.WithCancel(b.Context())
		var greedy sync.WaitGroup
		for i := range 8 {
			greedy.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					raw := fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy-%d-%d"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`, i, n)
					_, err := base.Evaluator.Mutate(ctx, decision.Request{
						Raw: raw, Operation: v1alpha1.OperationCreate, Review: document.FromObject(map[string]any{"operation": "CREATE"}),
						Tenant: &decision.Tenant{Project: "greedy", Department: "students", TimeZone: time.UTC},
					})
					if err == nil {
						evaluated.Add(1)
					}
				}
			})
		}
		beside = measure(beside)
		cancel()
		greedy.Wait()
	}
	percentile := func(took []time.Duration, percent int) float64 {
		slices.Sort(took)
		return float64(took[len(took)*percent/100].Microseconds())
	}
	b.ReportMetric(float64(evaluated.Load()), "evaluations-of-other")
	b.ReportMetric(percentile(alone, 50), "µs-median-alone")
	b.ReportMetric(percentile(beside, 50), "µs-median-beside")
	b.ReportMetric(percentile(alone, 99), "µs-p99-alone")
	b.ReportMetric(percentile(beside, 99), "µs-p99-beside")
	b.ReportMetric(percentile(beside, 99)/percentile(alone, 99), "x-p99")
}
