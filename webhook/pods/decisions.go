// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/value"
)

// maxDecisions is how long the record on a pod may be, in bytes. Of a longer one
// only the policies' names are kept.
const maxDecisions = 4096

// identity is the policy that says whose a pod is. It has something to write on
// every pod that had not been through here.
const identity = "core.project"

// recorded is the pod with the annotation that says which policy changed what:
// {"core.gpu": ["spec.containers[main].resources..."]}. A pass that comes after
// another, since a webhook in between changed the pod, adds to what that one
// wrote. On a pod whose identity this pass had to write, so that none was before
// it, whatever its author wrote there is replaced.
func recorded(before map[string]any, result merge.Result) (map[string]any, error) {
	decisions := make(map[string][]string, len(result.Changes))
	if _, first := result.Changes[identity]; !first {
		text := value.Text(value.Map(value.Map(before["metadata"])["annotations"])[v1alpha1.AnnotationDecisions])
		if len(text) <= maxDecisions && json.Unmarshal([]byte(text), &decisions) != nil {
			clear(decisions) // what cannot be read was not written here
		}
	}
	for policy, paths := range result.Changes {
		all := slices.Concat(decisions[policy], paths)
		slices.Sort(all)
		decisions[policy] = slices.Compact(all)
	}
	text, err := json.Marshal(decisions)
	if err == nil && len(text) > maxDecisions {
		for policy := range decisions {
			decisions[policy] = nil
		}
		text, err = json.Marshal(decisions)
	}
	if err != nil {
		return nil, fmt.Errorf("recording the decisions: %w", err)
	}
	after := maps.Clone(result.Object)
	metadata := orNew(after["metadata"])
	annotations := orNew(metadata["annotations"])
	annotations[v1alpha1.AnnotationDecisions] = string(text)
	metadata["annotations"] = annotations
	after["metadata"] = metadata
	return after, nil
}

// orNew is a copy of an object that may be changed.
func orNew(v any) map[string]any {
	if m := value.Map(v); m != nil {
		return maps.Clone(m)
	}
	return make(map[string]any)
}
