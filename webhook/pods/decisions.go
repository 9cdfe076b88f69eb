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

// recorded is the pod with the annotation that says which policy changed what:
// {"core.gpu": ["spec.containers[main].resources..."]}. A pass that comes after
// another, since a webhook in between changed the pod, adds to what that one
// wrote. On a pod that had not been through here, whatever its author wrote there
// is replaced.
func recorded(before map[string]any, result merge.Result) (map[string]any, error) {
	decisions := make(map[string][]string, len(result.Changes))
	if text, later := earlier(before); later {
		// What cannot be read was not written here.
		_ = json.Unmarshal([]byte(text), &decisions)
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

// earlier is the record of an earlier pass, and whether there was one.
func earlier(pod map[string]any) (string, bool) {
	metadata := value.Map(pod["metadata"])
	if value.Map(metadata["labels"])[v1alpha1.LabelProject] == nil {
		return "", false
	}
	text := value.Text(value.Map(metadata["annotations"])[v1alpha1.AnnotationDecisions])
	return text, text != "" && len(text) <= maxDecisions
}

// orNew is a copy of an object that may be changed.
func orNew(v any) map[string]any {
	if m := value.Map(v); m != nil {
		return maps.Clone(m)
	}
	return make(map[string]any)
}
