// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice.dev/webhook/pod"
)

// The API server checks labels and annotations only after the webhook. Long ones are the pod's fault,
// and no policy goes through them. Guards invariant 10 of the design.
func TestLongLabelsAndAnnotationsBlameNoPolicy(t *testing.T) {
	slashes := strings.Repeat("/", 2<<20)
	for name, metadata := range map[string]map[string]any{
		"key of an annotation": {"annotations": map[string]any{slashes: "x"}},
		"annotation":           {"annotations": map[string]any{"sluice.dev/node-pools": strings.Repeat(",", 2<<20)}},
		"key of a label":       {"labels": map[string]any{slashes: "x"}},
		"label":                {"labels": map[string]any{"kueue.x-k8s.io/queue-name": slashes}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
				"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "a"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			mutator := &pod.Mutator{Base: newBase(t)}
			response := mutator.Handle(t.Context(), createRequest(raw))
			if response.Allowed {
				t.Fatal("allowed")
			}
			text := response.Result.Message
			if !strings.Contains(text, "bytes, of which at most") || strings.Contains(text, "policy") || len(text) > 500 {
				t.Errorf("denied with %d bytes: %.300s", len(text), text)
			}
		})
	}
}
