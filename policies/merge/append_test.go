// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

func TestAppend(t *testing.T) {
	const tolerations = `append: [{path: [spec, tolerations], value: {key: gpu, operator: Exists}}]`
	check(t, []example{
		{
			name:     "adds to what the author wrote",
			object:   `tolerations: [{key: mine, operator: Exists}]`,
			policies: []string{tolerations},
			want:     `tolerations: [{key: mine, operator: Exists}, {key: gpu, operator: Exists}]`,
			changes:  map[string][]string{"a": {"spec.tolerations"}},
		},
		{
			name:     "makes the list",
			object:   `{}`,
			policies: []string{tolerations, `append: [{path: [spec, affinity, nodeAffinity, preferredDuringSchedulingIgnoredDuringExecution], value: {weight: 1, preference: {}}}]`},
			want:     `{tolerations: [{key: gpu, operator: Exists}], affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}}`,
		},
		{
			name:     "not what is there",
			object:   `tolerations: [{key: gpu, operator: Exists, effect: ""}]`,
			policies: []string{tolerations},
			changes:  map[string][]string{},
		},
		{
			name:     "once, for two policies",
			object:   `{}`,
			policies: []string{tolerations, tolerations},
			want:     `tolerations: [{key: gpu, operator: Exists}]`,
			changes:  map[string][]string{"a": {"spec.tolerations"}, "b": {"spec.tolerations"}},
		},
		{
			name:     "after a default has filled the list",
			object:   `{}`,
			policies: []string{tolerations, `defaults: {spec: {tolerations: [{key: b, operator: Exists}]}}`},
			want:     `tolerations: [{key: b, operator: Exists}, {key: gpu, operator: Exists}]`,
		},
		{
			name:   "in an order that depends on no other",
			object: `containers: [{name: main, args: [x]}, {name: side}]`,
			policies: []string{
				`{policy: z, append: [{path: [spec, containers, "*", args], value: --z}, {path: [spec, containers, "*", args], value: --a}]}`,
				`{policy: b, append: [{path: [spec, containers, "0", args], value: --main}, {path: [spec, containers, side, args], value: --side}, {path: [spec, containers, {name: side}, args], value: --more}]}`,
			},
			want: `containers: [{name: main, args: [x, --main, --z, --a]}, {name: side, args: [--side, --more, --z, --a]}]`,
		},
		{
			name:     "never to terms, which are ORed",
			object:   affinity(`[{matchExpressions: [{key: a, operator: Exists}]}]`),
			policies: []string{`append: [{path: [spec, affinity, nodeAffinity, requiredDuringSchedulingIgnoredDuringExecution, nodeSelectorTerms], value: {}}]`},
			err:      `policy a: append ["spec","affinity","nodeAffinity","requiredDuringSchedulingIgnoredDuringExecution","nodeSelectorTerms"]: terms are ORed, so that one more would allow more nodes: use nodes`,
		},
		{
			name:   "to what is no atomic list is an error",
			object: `{containers: [{name: main}], volumes: [{name: v}]}`,
			policies: []string{`
append:
- {path: [spec, tolerance], value: {}}
- {path: [spec, containers], value: {name: x}}
- {path: [spec, hostname], value: x}
- {path: [spec, tolerations], value: {keys: x}}
- {path: [spec, tolerations, "*", key], value: x}
- {path: [spec, volumes, {name: v}, projected, sources], value: {}}
- {path: [spec, hostAliases, {ip: 10.0.0.1}, hostnames], value: x}
- {path: [metadata, finalizers], value: x}
- {path: [status, conditions], value: {}}
- {path: [], value: x}
- {path: [spec, 1], value: x}
- {path: [spec, $patch], value: x}`},
			err: `policy a: append ["metadata","finalizers"]: cannot be written by any policy
policy a: append ["spec","$patch"]: $patch is a directive, of which there are none
policy a: append ["spec","containers"]: is merged by name: use defaults or overrides
policy a: append ["spec","hostname"]: is a string, not a list
policy a: append ["spec","tolerance"]: a pod has no field tolerance there
policy a: append ["spec","tolerations","*","key"]: is a string, not a list
policy a: append ["spec","tolerations"]: the element.keys a pod has no such field
policy a: append ["spec","volumes",{"name":"v"},"projected","sources"]: leads into a part that is replaced whole: write all of it in overrides
policy a: append ["spec",1]: step 2, 1, does not lead into an object
policy a: append ["status","conditions"]: cannot be written by any policy
policy a: append []: cannot be written as a whole
policy a: spec.hostAliases: has no 10.0.0.1: it is empty`,
		},
	})
}
