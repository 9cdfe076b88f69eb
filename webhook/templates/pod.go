// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"maps"
	"slices"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/merge/value"
)

// pod is the JSON of the pod that a template makes in a namespace, as far as it
// is known before there is one.
func pod(t kinds.Template, namespace string) ([]byte, error) {
	metadata := maps.Clone(value.Map(t.Body["metadata"]))
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata["namespace"] = namespace
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": metadata, "spec": t.Body["spec"],
	})
}

// changed are those of the templates that an older object did not have, or had
// otherwise.
func changed(now, before []kinds.Template) []kinds.Template {
	old := make(map[string]map[string]any, len(before))
	for _, t := range before {
		old[t.Place] = t.Body
	}
	return slices.DeleteFunc(now, func(t kinds.Template) bool {
		body, ok := old[t.Place]
		return ok && value.Equal(body, t.Body)
	})
}
