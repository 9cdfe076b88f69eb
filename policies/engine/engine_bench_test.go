// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// typicalDeny is a policy as platform teams write them: it reads the workload and
// iterates over the containers.
const typicalDeny = `package images_%d

deny contains msg if {
	input.workload.type == "interactive"
	input.workload.gpus > input.parameters.maxGPUs
	msg := sprintf("interactive workloads may use at most %%v GPU", [input.parameters.maxGPUs])
}

deny contains {"msg": msg, "field": field} if {
	some i, container in input.object.spec.containers
	not trusted(container.image)
	msg := sprintf("container %%v uses an image from elsewhere", [container.name])
	field := sprintf("spec.containers[%%d].image", [i])
}

trusted(image) if {
	some registry in input.parameters.registries
	startswith(image, registry)
}
`

const typicalParameters = `{"maxGPUs": 2, "registries": ["nvcr.io/", "registry.example.org/"]}`

func typicalPolicies(count int) []engine.Source {
	sources := make([]engine.Source, 0, count)
	for i := range count {
		sources = append(sources, engine.Source{
			Name: fmt.Sprintf("images-%d", i), Rego: fmt.Sprintf(typicalDeny, i), Parameters: []byte(typicalParameters),
		})
	}
	return sources
}

// reviews returns the bodies of admission requests, for pods of one controller or for
// different pods.
func reviews(b *testing.B, different bool) [][]byte {
	if !different {
		bodies := make([][]byte, 64)
		for i := range bodies {
			bodies[i] = largeReview(b, 0, i)
		}
		return bodies
	}
	// More than any policy caches.
	bodies := make([][]byte, 1024)
	for i := range bodies {
		bodies[i] = largeReview(b, i, i)
	}
	return bodies
}

// admitReview does what a webhook does with a body: decode and evaluate.
func admitReview(b *testing.B, e *engine.Engine, shared engine.Input, body []byte) {
	document, err := document.Decode(body)
	if err != nil {
		b.Fatal(err)
	}
	shared.Review = document.Field("request")
	outcome, err := e.Evaluate(b.Context(), shared)
	if err != nil || len(outcome.Denials) > 0 {
		b.Fatalf("%v %v", outcome.Denials, err)
	}
}

// evaluateNaively uses OPA as in its first example, once for each policy.
func evaluateNaively(b *testing.B, sources []engine.Source, body []byte) {
	var review map[string]any
	if err := json.Unmarshal(body, &review); err != nil {
		b.Fatal(err)
	}
	request := review["request"].(map[string]any)
	for i, source := range sources {
		var parameters any
		if err := json.Unmarshal(source.Parameters, &parameters); err != nil {
			b.Fatal(err)
		}
		input := map[string]any{
			"review": request, "object": request["object"], "parameters": parameters,
			"workload": map[string]any{"type": "interactive", "gpus": 2},
		}
		results, err := rego.New(
			rego.Query(fmt.Sprintf("data.images_%d.deny", i)),
			rego.Module(source.Name, source.Rego),
			rego.Input(input),
		).Eval(b.Context())
		if err != nil || len(results) != 1 || len(results[0].Expressions[0].Value.([]any)) > 0 {
			b.Fatalf("%v %v", results, err)
		}
	}
}

// BenchmarkEvaluate evaluates 5, 50 and 200 policies for a pod, from the body to the
// outcome. It reports the ratio to a naive use of OPA, measured in the same run with a
// few of the same bodies.
func BenchmarkEvaluate(b *testing.B) {
	for _, policies := range []int{5, 50, 200} {
		sources := typicalPolicies(policies)
		e := newEngine(b, sources...)
		shared := podInput(b, `{}`)
		for _, pods := range []string{"one-controller", "all-different"} {
			bodies := reviews(b, pods == "all-different")
			b.Run(fmt.Sprintf("%d-policies/%s", policies, pods), func(b *testing.B) {
				rounds := max(1, 20/policies)
				began := time.Now()
				for i := range rounds {
					evaluateNaively(b, sources, bodies[i%len(bodies)])
				}
				each := time.Since(began) / time.Duration(rounds)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; b.Loop(); i++ {
					admitReview(b, e, shared, bodies[i%len(bodies)])
				}
				ours := b.Elapsed() / time.Duration(b.N)
				b.ReportMetric(float64(each)/float64(ours), "x-naive")
			})
		}
	}
}

// BenchmarkEvaluateParallel evaluates 50 policies on all cores.
func BenchmarkEvaluateParallel(b *testing.B) {
	e := newEngine(b, typicalPolicies(50)...)
	shared := podInput(b, `{}`)
	bodies := reviews(b, true)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			admitReview(b, e, shared, bodies[i%len(bodies)])
		}
	})
}

// BenchmarkDecode compares the decoder with those of OPA and with encoding/json alone.
func BenchmarkDecode(b *testing.B) {
	body := largeReview(b, 0, 0)
	b.Run("engine", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := document.Decode(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("opa", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var value any
			if err := util.UnmarshalJSON(body, &value); err != nil {
				b.Fatal(err)
			}
			if _, err := ast.InterfaceToValue(value); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("opa-reader", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ast.ValueFromReader(bytes.NewReader(body)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var value any
			if err := json.Unmarshal(body, &value); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMatch finds the policies of one project among a thousand.
func BenchmarkMatch(b *testing.B) {
	sources := typicalPolicies(1000)
	for i := range sources {
		sources[i].Rego = sources[0].Rego
		sources[i].Match = v1alpha1.PolicyMatch{Projects: []string{fmt.Sprintf("project-%d", i/5)}, Kinds: []string{"Pod"}}
	}
	e := newEngine(b, sources...)
	set, err := e.Current()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if matched := set.MatchingPolicies(engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Project: "project-7"}); len(matched) != 5 {
			b.Fatal(matched)
		}
	}
}

// BenchmarkUpdate compiles 200 policies, and then one of them again.
func BenchmarkUpdate(b *testing.B) {
	sources := typicalPolicies(200)
	b.Run("all-200", func(b *testing.B) {
		for b.Loop() {
			newEngine(b, sources...)
		}
	})
	b.Run("one-of-200", func(b *testing.B) {
		e := newEngine(b, sources...)
		for i := 0; b.Loop(); i++ {
			sources[7].Rego = fmt.Sprintf(typicalDeny, 7) + fmt.Sprintf("\n# version %d\n", i)
			e.Update(sources)
		}
	})
}
