// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// maxDecisionsBytes limits the annotation, in bytes. A longer one keeps only the policies' names.
const maxDecisionsBytes = 4096

// identityPolicy records the project on a pod. It changes every pod that the webhook has not seen before.
const identityPolicy = "core.project"

// recordDecisions returns the merged pod with an annotation of the paths that each policy changed:
// {"core.gpu": ["spec.containers[main].resources..."]}. If the API server calls the webhook again because another
// webhook changed the pod, the second call adds to the annotation. The first call replaces the author's own value.
func recordDecisions(before map[string]any, result merge.Result) (map[string]any, error) {
	decisions := make(map[string][]string, len(result.ChangedPaths))
	if _, isFirstCall := result.ChangedPaths[identityPolicy]; !isFirstCall {
		text := schema.AsString(schema.AsMap(schema.AsMap(before["metadata"])["annotations"])[v1alpha1.AnnotationDecisions])
		if len(text) <= maxDecisionsBytes && json.Unmarshal([]byte(text), &decisions) != nil {
			clear(decisions) // the webhook did not write it
		}
	}
	for policy, paths := range result.ChangedPaths {
		all := slices.Concat(decisions[policy], paths)
		slices.Sort(all)
		decisions[policy] = slices.Compact(all)
	}
	text, err := json.Marshal(decisions)
	if err == nil && len(text) > maxDecisionsBytes {
		for policy := range decisions {
			decisions[policy] = nil
		}
		text, err = json.Marshal(decisions)
	}
	if err != nil {
		return nil, fmt.Errorf("encode decisions: %w", err)
	}
	after := maps.Clone(result.Object)
	metadata := cloneOrNew(after["metadata"])
	annotations := cloneOrNew(metadata["annotations"])
	annotations[v1alpha1.AnnotationDecisions] = string(text)
	metadata["annotations"] = annotations
	after["metadata"] = metadata
	return after, nil
}

// cloneOrNew returns a shallow copy of an object, or a new one.
func cloneOrNew(v any) map[string]any {
	if m := schema.AsMap(v); m != nil {
		return maps.Clone(m)
	}
	return make(map[string]any)
}
