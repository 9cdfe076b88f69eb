// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
)

// chosenNode warns of a template whose pods name their node. No policy refuses
// such pods: a door does, which sees them only when they are made, and tells
// their controller and not their author.
func chosenNode(t kinds.Template) []intent.Complaint {
	node := value.Text(value.Map(t.Body["spec"])["nodeName"])
	if node == "" {
		return nil
	}
	return []intent.Complaint{{
		Field:   t.Place + ".spec.nodeName",
		Message: fmt.Sprintf("%s: a pod of a project does not choose its node, and these will be refused", node),
		Fix:     "take it out, and name node pools with the annotation sluice.dev/node-pools",
	}}
}
