// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
)

// All three deny the same pods, by the same policies and with the same messages.
func TestSameDenialsAsGatekeeper(t *testing.T) {
	const count = 200
	for _, ownTemplates := range []bool{true, false} {
		policies := policiesOf(t, count, ownTemplates)
		whole, alone, ours := gatekeeper(t, policies), driver(t, policies), sluice(t, policies, 0)
		denied := make(map[string]bool)
		for number, body := range differentPods(t)[:30] {
			var got []string
			for _, denial := range evaluateWith(t, ours, body).Denials {
				got = append(got, denial.Policy+": "+denial.Message)
				denied[denial.Policy] = true
			}
			slices.Sort(got)
			for name, theirs := range map[string]*client.Client{"gatekeeper": whole, "driver": alone} {
				if diff := cmp.Diff(messages(t, theirs, body), got); diff != "" {
					t.Fatalf("pod %d, own templates %v: %s (-) and sluice (+) differ:\n%s", number, ownTemplates, name, diff)
				}
			}
		}
		if len(denied) < count/4 || len(denied) == count {
			t.Errorf("%d of %d policies denied a pod; want some, but not all", len(denied), count)
		}
	}
}

func messages(tb testing.TB, c *client.Client, body []byte) []string {
	tb.Helper()
	var all []string
	for _, result := range reviewWith(tb, c, body) {
		all = append(all, result.Constraint.GetName()+": "+result.Msg)
	}
	slices.Sort(all)
	return all
}

// The reviews have the size and variety that docs/developer/performance.md states.
func TestReviews(t *testing.T) {
	if size := len(review(t, 0, 0)); size < 6500 || size > 8500 {
		t.Errorf("a review has %d bytes; want about 7 kB", size)
	}
	bodies := differentPods(t)
	for name, want := range map[string]struct {
		cacheEntries, atLeast, atMost int
	}{
		"never cached": {-1, 0, 0},
		// Half of the policies read images and labels.
		"all different": {0, 30, 70},
	} {
		e, cached := sluice(t, policiesOf(t, 8, true), want.cacheEntries), 0
		for _, body := range bodies {
			for _, evaluation := range evaluateWith(t, e, body).Evaluations {
				if evaluation.Cached {
					cached++
				}
			}
		}
		if percent := cached * 100 / (8 * len(bodies)); percent < want.atLeast || percent > want.atMost {
			t.Errorf("%s: %d %% of the results were cached, want %d to %d", name, percent, want.atLeast, want.atMost)
		}
	}
}

// sluiceReviews is the number of reviews that Sluice evaluates for each of the others'.
// The times are then similar, so other load on the machine affects all alike.
const sluiceReviews = 8

// BenchmarkAgainstGatekeeper measures three engines alternately, from body to result. It
// reports the time of a review with each, and the ratio of the other two to Sluice:
//
//	gatekeeper  Gatekeeper's client, Rego driver and target
//	driver      the same with a target that costs almost nothing
//	sluice      Sluice's engine
//
// Templates: each policy has its own, or all policies of a rule share one, which
// Gatekeeper evaluates together. Pods: those of one controller, for which Sluice caches
// all results; all different, for which it caches the results of policies that read only
// what is equal; and the same pods without a cache, as if policies read everything that
// differs.
func BenchmarkAgainstGatekeeper(b *testing.B) {
	for _, count := range []int{5, 50, 200} {
		for _, templates := range []string{"own-templates", "shared-templates"} {
			policies := policiesOf(b, count, templates == "own-templates")
			whole, alone, ours := gatekeeper(b, policies), driver(b, policies), sluice(b, policies, 0)
			for _, pods := range []string{"never-cached", "all-different", "one-controller"} {
				bodies, ours := differentPods(b), ours
				switch pods {
				case "never-cached":
					ours = sluice(b, policies, -1)
				case "one-controller":
					bodies = podsOfOneController(b)
				}
				b.Run(fmt.Sprintf("%d-policies/%s/%s", count, templates, pods), func(b *testing.B) {
					var gatekeeperTime, driverTime, sluiceTime time.Duration
					for i := 0; b.Loop(); i++ {
						gatekeeperTime += timed(func() { reviewWith(b, whole, bodies[i%len(bodies)]) })
						driverTime += timed(func() { reviewWith(b, alone, bodies[i%len(bodies)]) })
						sluiceTime += timed(func() {
							for k := range sluiceReviews {
								evaluateWith(b, ours, bodies[(i*sluiceReviews+k)%len(bodies)])
							}
						})
					}
					each := float64(sluiceTime) / sluiceReviews
					b.ReportMetric(0, "ns/op") // the sum of all three means nothing
					b.ReportMetric(float64(gatekeeperTime)/float64(b.N), "gatekeeper-ns/op")
					b.ReportMetric(float64(driverTime)/float64(b.N), "driver-ns/op")
					b.ReportMetric(each/float64(b.N), "sluice-ns/op")
					b.ReportMetric(float64(gatekeeperTime)/each, "x-gatekeeper")
					b.ReportMetric(float64(driverTime)/each, "x-driver")
				})
			}
		}
	}
}

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
