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

// maxDecisionsBytes is how long the record on a pod may be, in bytes. Of a longer one
// only the policies' names are kept.
const maxDecisionsBytes = 4096

// identityPolicy is the policy that says whose a pod is. It has something to write on
// every pod that had not been through here.
const identityPolicy = "core.project"

// recordDecisions is the pod with the annotation that says which policy changed what:
// {"core.gpu": ["spec.containers[main].resources..."]}. A pass that comes after
// another, since a webhook in between changed the pod, adds to what that one
// wrote. On a pod whose identity this pass had to write, so that none was before
// it, whatever its author wrote there is replaced.
func recordDecisions(before map[string]any, result merge.Result) (map[string]any, error) {
	decisions := make(map[string][]string, len(result.ChangedPaths))
	if _, first := result.ChangedPaths[identityPolicy]; !first {
		text := schema.AsString(schema.AsMap(schema.AsMap(before["metadata"])["annotations"])[v1alpha1.AnnotationDecisions])
		if len(text) <= maxDecisionsBytes && json.Unmarshal([]byte(text), &decisions) != nil {
			clear(decisions) // what cannot be read was not written here
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
		return nil, fmt.Errorf("recording the decisions: %w", err)
	}
	after := maps.Clone(result.Object)
	metadata := cloneOrNew(after["metadata"])
	annotations := cloneOrNew(metadata["annotations"])
	annotations[v1alpha1.AnnotationDecisions] = string(text)
	metadata["annotations"] = annotations
	after["metadata"] = metadata
	return after, nil
}

// cloneOrNew is a copy of an object that may be changed.
func cloneOrNew(v any) map[string]any {
	if m := schema.AsMap(v); m != nil {
		return maps.Clone(m)
	}
	return make(map[string]any)
}
