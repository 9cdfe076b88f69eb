// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"slices"
	"strings"

	"sluice.dev/policies/merge/value"
)

// LimitRanger writes down what it set, as in "LimitRanger plugin set: cpu, memory
// request for container main; cpu limit for init container prepare". An author who
// writes that note leaves open values that are the author's own, no others.
const (
	limitRangerAnnotation = "kubernetes.io/limit-ranger"
	limitRangerPrefix     = "LimitRanger plugin set: "
)

func limitRangerNote(_ Cluster, at Place, v any) bool {
	return at.Entry == limitRangerAnnotation && strings.HasPrefix(value.Text(v), limitRangerPrefix)
}

// fromLimitRange tells whether LimitRanger set this container's limit or request.
func fromLimitRange(at Place, what string) bool {
	metadata := value.Map(at.Object["metadata"])
	note, ok := strings.CutPrefix(value.Text(value.Map(metadata["annotations"])[limitRangerAnnotation]), limitRangerPrefix)
	if !ok {
		return false
	}
	kind := map[string]string{"containers": "container", "initContainers": "init container"}[at.List]
	whose := " " + what + " for " + kind + " " + value.Text(at.Container["name"])
	for clause := range strings.SplitSeq(note, "; ") {
		if names, ok := strings.CutSuffix(clause, whose); ok && slices.Contains(strings.Split(names, ", "), at.Entry) {
			return true
		}
	}
	return false
}
