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
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// BenchmarkOtherProjectsWorstPolicy measures the latency of one project's admissions, one after another, alone and
// while another project keeps its slots busy with pods on which a policy takes half of its limit of processor time.
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
	measure := func() (median, p99 time.Duration) {
		var took []time.Duration
		for range admissions {
			next++
			one, _ := serveTimed(b, mutator, trainingReview(b, next, next))
			took = append(took, one)
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	for b.Loop() {
		aloneMedian, aloneP99 := measure()
		ctx, cancel := context.WithCancel(b.Context())
		var greedy sync.WaitGroup
		var evaluated atomic.Int64
		for i := range 8 {
			greedy.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					raw := fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy-%d-%d"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`, i, n)
					_, err := base.Evaluator.Mutate(ctx, evaluation.Request{
						Raw: raw, Operation: v1alpha1.OperationCreate, Review: document.FromObject(map[string]any{"operation": "CREATE"}),
						Tenant: &evaluation.Tenant{Project: "greedy", Department: "students", TimeZone: time.UTC},
					})
					if err == nil {
						evaluated.Add(1)
					}
				}
			})
		}
		besideMedian, besideP99 := measure()
		cancel()
		greedy.Wait()
		b.ReportMetric(float64(evaluated.Load()), "evaluations-of-other")
		b.ReportMetric(float64(aloneMedian.Microseconds()), "µs-median-alone")
		b.ReportMetric(float64(besideMedian.Microseconds()), "µs-median-beside")
		b.ReportMetric(float64(aloneP99.Microseconds()), "µs-p99-alone")
		b.ReportMetric(float64(besideP99.Microseconds()), "µs-p99-beside")
		b.ReportMetric(float64(besideP99)/float64(aloneP99), "x-p99")
	}
}
