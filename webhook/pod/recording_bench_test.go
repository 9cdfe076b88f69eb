// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"io"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// BenchmarkRecording compares the time to answer an admission with records, and with records of whole objects, with that without. The
// handlers alternate within one run, so that the ratios hold on a noisy machine.
func BenchmarkRecording(b *testing.B) {
	for name, body := range map[string]func(int) []byte{
		"OneController": func(i int) []byte { return trainingReview(b, 0, i) },
		"NothingAlike":  func(i int) []byte { return distinctReview(b, i) },
	} {
		b.Run(name, func(b *testing.B) {
			newLog := func(objects bool) *decisionlog.Log {
				log, err := decisionlog.New(decisionlog.Options{
					Output: io.Discard, Objects: objects, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked,
				})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(log.Close)
				return log
			}
			var handlers []*admission.Webhook
			for _, log := range []*decisionlog.Log{nil, newLog(false), newLog(true)} {
				// Each has an engine of its own, so that none profits from the caches of the others.
				handlers = append(handlers, &admission.Webhook{Handler: evaluation.NewRecorder("pods", log, &pod.Mutator{Base: newBase(b)})})
			}
			times := make([]time.Duration, len(handlers))
			next := 0
			for b.Loop() {
				raw := body(next)
				for i := range handlers {
					at := (i + next) % len(handlers) // none is always the first
					took, _ := serveTimed(b, handlers[at], raw)
					times[at] += took
				}
				next++
			}
			b.ReportMetric(0, "ns/op") // the sum of all handlers is meaningless
			b.ReportMetric(float64(times[0].Microseconds())/float64(next), "µs-without")
			b.ReportMetric(float64(times[1])/float64(times[0]), "x-records")
			b.ReportMetric(float64(times[2])/float64(times[0]), "x-objects")
		})
	}
}
