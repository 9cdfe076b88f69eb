// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/merge/value"
)

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
