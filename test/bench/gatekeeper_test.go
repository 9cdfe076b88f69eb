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

// All refuse the same pods, for the same policies and in the same words.
func TestAllAnswerTheSame(t *testing.T) {
	const count = 200
	for _, ownTemplates := range []bool{true, false} {
		policies := policiesOf(t, count, ownTemplates)
		whole, alone, ours := gatekeeper(t, policies), driver(t, policies), sluice(t, policies, 0)
		refused := make(map[string]bool)
		for number, body := range differentPods(t)[:30] {
			var got []string
			for _, denial := range evaluateWith(t, ours, body).Denials {
				got = append(got, denial.Policy+": "+denial.Message)
				refused[denial.Policy] = true
			}
			slices.Sort(got)
			for name, theirs := range map[string]*client.Client{"gatekeeper": whole, "driver": alone} {
				if diff := cmp.Diff(messages(t, theirs, body), got); diff != "" {
					t.Fatalf("pod %d, own templates %v: %s (-) and sluice (+) differ:\n%s", number, ownTemplates, name, diff)
				}
			}
		}
		if len(refused) < count/4 || len(refused) == count {
			t.Errorf("%d of %d policies refused a pod; some should, and some not", len(refused), count)
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

// The reviews are what the figures say they are.
func TestReviews(t *testing.T) {
	if size := len(review(t, 0, 0)); size < 6500 || size > 8500 {
		t.Errorf("a review has %d bytes; about 7 kB are meant", size)
	}
	bodies := differentPods(t)
	for name, want := range map[string]struct {
		remember, atLeast, atMost int
	}{
		"never recalled": {-1, 0, 0},
		// Images and labels are read by half of the policies.
		"all different": {0, 30, 70},
	} {
		e, recalled := sluice(t, policiesOf(t, 8, true), want.remember), 0
		for _, body := range bodies {
			for _, evaluation := range evaluateWith(t, e, body).Evaluations {
				if evaluation.Recalled {
					recalled++
				}
			}
		}
		if percent := recalled * 100 / (8 * len(bodies)); percent < want.atLeast || percent > want.atMost {
			t.Errorf("%s: %d %% of the answers were recalled, want %d to %d", name, percent, want.atLeast, want.atMost)
		}
	}
}

// turns is how many reviews Sluice answers for each of the others'. It evens the
// time that they take, so that what else the machine does hits all alike.
const turns = 8

// BenchmarkAgainstGatekeeper measures three in turns, body in, answer out, and
// reports what a review takes with each, and how many times longer than with
// Sluice it takes with the other two:
//
//	gatekeeper  Gatekeeper's client, Rego driver and target
//	driver      the same with a target that costs next to nothing
//	sluice      Sluice's engine
//
// Templates: each policy has one of its own, or all policies of a rule share
// one, which Gatekeeper asks about all of them at once. Pods: of one controller, so
// that Sluice recalls all answers; all different, so that it recalls those of the
// policies that read only what is alike nevertheless; and the same while it
// remembers nothing, as if they differed in all that policies read.
func BenchmarkAgainstGatekeeper(b *testing.B) {
	for _, count := range []int{5, 50, 200} {
		for _, templates := range []string{"own-templates", "shared-templates"} {
			policies := policiesOf(b, count, templates == "own-templates")
			whole, alone, ours := gatekeeper(b, policies), driver(b, policies), sluice(b, policies, 0)
			for _, pods := range []string{"never-recalled", "all-different", "one-controller"} {
				bodies, ours := differentPods(b), ours
				switch pods {
				case "never-recalled":
					ours = sluice(b, policies, -1)
				case "one-controller":
					bodies = podsOfOneController(b)
				}
				b.Run(fmt.Sprintf("%d-policies/%s/%s", count, templates, pods), func(b *testing.B) {
					var gatekeeperTook, driverTook, sluiceTook time.Duration
					for i := 0; b.Loop(); i++ {
						gatekeeperTook += timed(func() { reviewWith(b, whole, bodies[i%len(bodies)]) })
						driverTook += timed(func() { reviewWith(b, alone, bodies[i%len(bodies)]) })
						sluiceTook += timed(func() {
							for turn := range turns {
								evaluateWith(b, ours, bodies[(i*turns+turn)%len(bodies)])
							}
						})
					}
					each := float64(sluiceTook) / turns
					b.ReportMetric(0, "ns/op") // of all three together: says nothing
					b.ReportMetric(float64(gatekeeperTook)/float64(b.N), "gatekeeper-ns/op")
					b.ReportMetric(float64(driverTook)/float64(b.N), "driver-ns/op")
					b.ReportMetric(each/float64(b.N), "sluice-ns/op")
					b.ReportMetric(float64(gatekeeperTook)/each, "x-gatekeeper")
					b.ReportMetric(float64(driverTook)/each, "x-driver")
				})
			}
		}
	}
}

func timed(what func()) time.Duration {
	began := time.Now()
	what()
	return time.Since(began)
}
