// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// composing are policies of teams, by what they compose. Each %d is the number of the policy.
var composing = map[string]string{
	"messages": typicalDeny,
	"sets": `package sets_%d

names contains name if {
	some container in input.object.spec.containers
	some variable in container.env
	name := concat("/", [container.name, variable.name])
}

deny contains {"msg": sprintf("%%v has no namesake", [name])} if {
	some name in names
	not endswith(name, "_0") in {true, false}
}
`,
	"changes": `package changes_%d

overrides.spec.containers := [{"name": container.name, "env": variables, "resources": {"limits": limits}} |
	some container in input.object.spec.containers
	variables := [{"name": variable.name, "value": variable.value} | some variable in container.env]
	limits := {name: quantity | some name, quantity in container.resources.limits}
]
`,
}

// BenchmarkValueLimit measures what it costs that each value which a policy of a team composes is measured: twenty policies
// evaluate pods that are all different, without a cache, in turns with the same policies as built-in ones, whose values are
// not measured.
func BenchmarkValueLimit(b *testing.B) {
	options := engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}, CacheEntries: -1}
	for _, name := range slices.Sorted(maps.Keys(composing)) {
		rego := composing[name]
		b.Run(name, func(b *testing.B) {
			var engines [2]*engine.Engine
			for i := range engines {
				var sources []engine.Source
				for n := range 20 {
					sources = append(sources, engine.Source{
						Name: fmt.Sprint("team-", n), Rego: fmt.Sprintf(rego, n), Parameters: []byte(typicalParameters), BuiltIn: i == 0,
					})
				}
				engines[i] = newEngineWithOptions(b, options, sources...)
			}
			var took [2][]time.Duration
			for n := 0; b.Loop(); n++ {
				pod, err := document.Decode(largeReview(b, n, n))
				if err != nil {
					b.Fatal(err)
				}
				in := podInput(b, `{}`)
				in.Review = pod.Field("request")
				for turn := range engines {
					i := (n + turn) % len(engines)
					start := time.Now()
					outcome, err := engines[i].Evaluate(b.Context(), in)
					took[i] = append(took[i], time.Since(start))
					if err != nil || len(outcome.Denials)+len(outcome.Failures) > 0 {
						b.Fatalf("%v %v", outcome.Denials, err)
					}
				}
			}
			for i := range took {
				slices.Sort(took[i])
			}
			free, limited := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(float64(free.Microseconds()), "µs-median-free")
			b.ReportMetric(float64(limited.Microseconds()), "µs-median-limited")
			b.ReportMetric(float64(limited)/float64(free), "x-limited")
		})
	}
}
