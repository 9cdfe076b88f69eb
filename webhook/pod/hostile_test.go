// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/corpus"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// newSharedBase returns a base with the projects thesis and calm, each with a namespace of its name, which share the
// evaluation slots.
func newSharedBase(tb testing.TB) evaluation.Base {
	tb.Helper()
	cluster := newFakeReader()
	calm := cluster.projects[0].DeepCopy()
	calm.Name, calm.Status.Namespace = "calm", &v1alpha1.ProjectNamespace{Name: "calm"}
	cluster.projects = append(cluster.projects, *calm)
	base := newBase(tb)
	base.Tenants = &evaluation.TenantResolver{Cache: cluster}
	base.Evaluator.Slots = evaluation.NewSlots(2)
	return base
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Every pod is answered in bounded time and memory, a refusal blames the pod, and a plain pod of another project is
// admitted meanwhile. Guards invariants 1 and 10 of the design.
func TestHostilePodsHarmNoOthers(t *testing.T) {
	const (
		maxProcessorTime = 5 * time.Second
		maxAllocated     = 768 << 20
		maxMessage       = 24 << 10
		maxPatch         = 6 << 20
	)
	base := newSharedBase(t)
	mutator, validator := &pod.Mutator{Base: base}, &pod.Validator{Base: base}
	plain := createRequest([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "a"}]}}`))
	plain.Namespace = "calm"
	if response := mutator.Handle(t.Context(), plain); !response.Allowed {
		t.Fatalf("the plain pod: %s", response.Result.Message)
	}
	for name, raw := range corpus.Pods() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := processorTime(t)
			answered := make(chan admission.Response, 1)
			go func() { answered <- mutator.Handle(t.Context(), createRequest(raw)) }()
			if other := mutator.Handle(t.Context(), plain); !other.Allowed {
				t.Errorf("a plain pod of another project: %s", other.Result.Message)
			}
			response := <-answered
			if response.Allowed {
				final := validator.Handle(t.Context(), createRequest(applyPatch(t, raw, response)))
				if !final.Allowed {
					t.Errorf("the final pod: %.500s", final.Result.Message)
				}
			}
			used := processorTime(t) - began
			runtime.ReadMemStats(&after)
			if used > maxProcessorTime {
				t.Errorf("%s of processor time, want at most %s", used, maxProcessorTime)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
				t.Errorf("%d MiB allocated, want at most %d", allocated>>20, maxAllocated>>20)
			}
			if len(response.Patch) > maxPatch {
				t.Errorf("a patch of %d bytes", len(response.Patch))
			}
			requireBlamesPod(t, response, maxMessage)
		})
	}
}

// requireBlamesPod fails if a response blames a policy or the cluster, or is not fit for a terminal.
func requireBlamesPod(t *testing.T, response admission.Response, maxMessage int) {
	t.Helper()
	texts := response.Warnings
	if response.Result != nil {
		texts = append(texts, response.Result.Message)
	}
	for _, text := range texts {
		for _, wrong := range []string{"could not be evaluated", "administrators", "processor time", "try again", "policies conflict", "panic"} {
			if strings.Contains(text, wrong) {
				t.Errorf("%q in %.500q", wrong, text)
			}
		}
		if len(text) > maxMessage {
			t.Errorf("a message of %d bytes: %.200q", len(text), text)
		}
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
		}); i >= 0 {
			t.Errorf("a control character in %.500q", text)
		}
	}
	if !response.Allowed && (response.Result == nil || strings.TrimSpace(response.Result.Message) == "") {
		t.Error("refused without a message")
	}
}
