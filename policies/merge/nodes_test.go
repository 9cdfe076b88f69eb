// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

// affinity is a spec with these required node selector terms.
func affinity(terms string) string {
	return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ` + terms + `}}}`
}

func TestNodesNarrowEveryTerm(t *testing.T) {
	const (
		inPool  = `nodes: [{key: pool, operator: In, values: [b, a]}]`
		pool    = `{key: pool, operator: In, values: [a, b]}`
		changed = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	)
	check(t, []example{
		{
			name:     "one is made where there is none",
			object:   `hostname: h`,
			policies: []string{inPool, `nodes: [{key: gpu, operator: Exists}, {key: pool, operator: In, values: [a, b, a]}]`},
			want:     `{hostname: h, ` + affinity(`[{matchExpressions: [{key: gpu, operator: Exists}, `+pool+`]}]`) + `}`,
			changes:  map[string][]string{"a": {changed}, "b": {changed}},
		},
		{
			// Terms are ORed: a term beside these would let the pod run elsewhere.
			name:     "each of several is given it",
			object:   affinity(`[{matchExpressions: [{key: zone, operator: In, values: [z]}]}, {matchFields: [{key: metadata.name, operator: In, values: [node]}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: In, values: [z]}, ` + pool + `]}, {matchFields: [{key: metadata.name, operator: In, values: [node]}], matchExpressions: [` + pool + `]}]`),
		},
		{
			// One without any expression matches no node; with one it would match.
			name:     "an empty one stays empty",
			object:   affinity(`[{}, {matchExpressions: []}, {matchExpressions: [{key: zone, operator: Exists}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{}, {matchExpressions: []}, {matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
		},
		{
			name:     "an affinity without terms matches no node either",
			object:   affinity(`[]`),
			policies: []string{inPool},
			changes:  map[string][]string{},
		},
		{
			name:     "an equal one is not repeated",
			object:   affinity(`[{matchExpressions: [{key: pool, operator: In, values: [b, a]}]}]`),
			policies: []string{inPool},
			changes:  map[string][]string{},
		},
		{
			name:     "another of the same key is kept",
			object:   affinity(`[{matchExpressions: [{key: pool, operator: In, values: [a, b, c]}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{matchExpressions: [{key: pool, operator: In, values: [a, b, c]}, ` + pool + `]}]`),
		},
		{
			name:     "what is preferred is kept",
			object:   `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}`,
			policies: []string{inPool},
			want:     `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}], requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [` + pool + `]}]}}}`,
		},
		{
			name:     "also those of another policy's default and override",
			object:   `{}`,
			policies: []string{inPool, `defaults: {spec: {` + affinity(`[{matchExpressions: [{key: zone, operator: Exists}]}]`) + `}}`},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
		},
		{
			name:     "and an override's",
			object:   affinity(`[{matchExpressions: [{key: mine, operator: Exists}]}]`),
			policies: []string{inPool, `overrides: {spec: {` + affinity(`[{matchExpressions: [{key: zone, operator: Exists}]}]`) + `}}`},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
			warnings: []string{`policy b replaced ` + changed + `: {"nodeSelectorTerms":[{"matchExpressions":[{"key":"mine","op... is now {"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","op...`},
		},
		{
			name:     "without key is an error",
			object:   `{}`,
			policies: []string{`nodes: [{operator: Exists}, {key: a}]`},
			err: `policy a: nodes: a requirement needs a key and an operator, and is {"key":"","operator":"Exists"}` + "\n" +
				`policy a: nodes: a requirement needs a key and an operator, and is {"key":"a","operator":""}`,
		},
		{
			name:     "where another removes the affinity is a conflict",
			object:   affinity(`[{matchExpressions: [{key: mine, operator: Exists}]}]`),
			policies: []string{inPool, `overrides: {spec: {affinity: null}}`},
			err:      `policies conflict: spec.affinity: policy a writes in it, policy b wants it removed`,
		},
	})
}
