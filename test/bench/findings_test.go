// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"testing"
	"time"
)

// policiesThat returns this many policies of which all, or none, refuse every pod. They have templates of their own, or those of
// a rule share one.
func policiesThat(tb testing.TB, refuse bool, count int, ownTemplates bool) []policy {
	tb.Helper()
	all := policiesOf(tb, count*4, ownTemplates)
	kept := make([]policy, 0, count)
	for i, p := range all {
		nth := i / len(rules(tb))
		switch i % len(rules(tb)) {
		case 0: // the rule 1-gpu-limit: each pod has 2 to 6 GPUs
			p.parameters = map[string]any{"max": 100 + nth}
			if refuse {
				p.parameters = map[string]any{"max": 0}
			}
		case 1: // the rule 2-required-labels: each pod has the label app
			p.parameters = map[string]any{"labels": []any{"app"}}
			if refuse {
				p.parameters = map[string]any{"labels": []any{fmt.Sprintf("absent-%d", nth)}}
			}
		default:
			continue
		}
		kept = append(kept, p)
	}
	return kept[:count]
}

// BenchmarkFindings measures the driver of frameworks/constraint and Sluice's engine alternately: for 5 to 1000 policies that all
// refuse each pod, or none of which does, and for pods of one controller or all different ones.
func BenchmarkFindings(b *testing.B) {
	for _, count := range []int{5, 50, 200, 1000} {
		for _, refuse := range []bool{true, false} {
			policies := policiesThat(b, refuse, count, false)
			theirs, ours := driver(b, policies), sluice(b, policies, 0)
			for _, pods := range []string{"all-different", "one-controller"} {
				bodies := differentPods(b)
				if pods == "one-controller" {
					bodies = podsOfOneController(b)
				}
				if found, want := len(reviewWith(b, theirs, bodies[0])), map[bool]int{true: count, false: 0}[refuse]; found != want {
					b.Fatalf("%d findings, want %d", found, want)
				}
				b.Run(fmt.Sprintf("%d-policies/refuse-%v/%s", count, refuse, pods), func(b *testing.B) {
					var driverTime, sluiceTime time.Duration
					for i := 0; b.Loop(); i++ {
						driverTime += timed(func() { reviewWith(b, theirs, bodies[i%len(bodies)]) })
						sluiceTime += timed(func() {
							for k := range sluiceReviews {
								evaluateWith(b, ours, bodies[(i*sluiceReviews+k)%len(bodies)])
							}
						})
					}
					each := float64(sluiceTime) / sluiceReviews
					b.ReportMetric(0, "ns/op") // the sum of both means nothing
					b.ReportMetric(float64(driverTime)/float64(b.N), "driver-ns/op")
					b.ReportMetric(each/float64(b.N), "sluice-ns/op")
					b.ReportMetric(float64(driverTime)/each, "x-driver")
				})
			}
		}
	}
}
