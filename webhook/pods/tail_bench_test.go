// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/pods"
)

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

// BenchmarkTail measures how long admissions take with 50 policies while all
// processors are busy with them: the median, and what one of a hundred exceeds. A
// handler that decodes the pod and allows it takes turns with them, and tells what
// of that is the machine's.
func BenchmarkTail(b *testing.B) {
	desk := newDesk(b, teamPolicies(50)...)
	desk.Judge.Turns = semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))
	corpora := []struct {
		name string
		body func(int) []byte
	}{
		{"AllDifferent", func(i int) []byte { return review(b, i, i) }},
		{"NothingAlike", func(i int) []byte { return unlike(b, i) }},
	}
	// More than any memory keeps.
	const many = 2500
	for _, corpus := range corpora {
		before, after := make([][]byte, many), make([][]byte, many)
		mutator := &admission.Webhook{Handler: &pods.Mutator{Desk: desk}}
		for i := range many {
			before[i] = corpus.body(i)
			_, answer := timed(b, mutator, before[i])
			after[i] = patched(b, before[i], answer)
		}
		b.Run(corpus.name+"/mutating", func(b *testing.B) { tail(b, mutator, before) })
		b.Run(corpus.name+"/validating", func(b *testing.B) {
			tail(b, &admission.Webhook{Handler: &pods.Validator{Desk: desk}}, after)
		})
	}
}

func tail(b *testing.B, handler http.Handler, bodies [][]byte) {
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
			took, _ := timed(b, handler, body)
			mine = append(mine, took)
			took, _ = timed(b, baseline, body)
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
	b.ReportMetric(milliseconds(all, 0.5), "ms-p50")
	b.ReportMetric(milliseconds(all, 0.99), "ms-p99")
	b.ReportMetric(milliseconds(machine, 0.5), "ms-decode-and-allow-p50")
	b.ReportMetric(milliseconds(machine, 0.99), "ms-decode-and-allow-p99")
}

// milliseconds is what a share of the times does not exceed.
func milliseconds(times []time.Duration, share float64) float64 {
	slices.Sort(times)
	return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
}
