// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"
)

func TestElementsMergeByAllKeys(t *testing.T) {
	runCases(t, []mergeCase{
		{
			// Strategic merge takes containerPort alone, and would make one port of
			// these two.
			name:     "ports by number and protocol",
			object:   `containers: [{name: main, ports: [{containerPort: 53, protocol: UDP, name: dns}, {containerPort: 80, name: web}]}]`,
			policies: []string{`overrides: {spec: {containers: {main: {ports: [{containerPort: 53, name: dns-tcp}, {containerPort: 80, protocol: TCP, name: http}]}}}}`},
			want:     `containers: [{name: main, ports: [{containerPort: 53, protocol: UDP, name: dns}, {containerPort: 80, name: http}, {containerPort: 53, protocol: TCP, name: dns-tcp}]}]`,
			warnings: []string{`policy a replaced spec.containers[main].ports[80/TCP].name: "web" is now "http"`},
			changes:  map[string][]string{"a": {"spec.containers[main].ports[53/TCP]", "spec.containers[main].ports[53/TCP].name", "spec.containers[main].ports[80/TCP].name"}},
		},
		{
			name:     "topology spread by both keys",
			object:   `topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}]`,
			policies: []string{`defaults: {spec: {topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, maxSkew: 2}, {topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 3, minDomains: 2}]}}`},
			want:     `topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1, minDomains: 2}, {topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, maxSkew: 2}]`,
		},
		{
			name: "all others by one key, in the author's order",
			object: `
volumes: [{name: b, emptyDir: {medium: Memory}}, {name: a, emptyDir: {medium: Memory}}]
hostAliases: [{ip: 10.0.0.1, hostnames: [x]}]
imagePullSecrets: [{name: mine}]
schedulingGates: [{name: g/a}]
resourceClaims: [{name: gpu, resourceClaimName: c}]
containers: [{name: z, volumeMounts: [{mountPath: /b, name: b}, {mountPath: /a, name: a}], volumeDevices: [{devicePath: /dev/a, name: a}], resources: {claims: [{name: gpu}]}}]`,
			policies: []string{`
overrides:
  spec:
    volumes: [{name: c, emptyDir: {}}, {name: a, emptyDir: {}}]
    hostAliases: [{ip: 10.0.0.1, hostnames: [w]}, {ip: 10.0.0.2, hostnames: [z]}]
    imagePullSecrets: [{name: ours}, {name: mine}]
    schedulingGates: [{name: g/b}]
    resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
    containers: {"*": {volumeMounts: [{mountPath: /a, readOnly: true}], volumeDevices: [{devicePath: /dev/a, name: b}], resources: {claims: [{name: gpu, request: r}]}}}`},
			want: `
volumes: [{name: b, emptyDir: {medium: Memory}}, {name: a, emptyDir: {}}, {name: c, emptyDir: {}}]
hostAliases: [{ip: 10.0.0.1, hostnames: [w]}, {ip: 10.0.0.2, hostnames: [z]}]
imagePullSecrets: [{name: mine}, {name: ours}]
schedulingGates: [{name: g/a}, {name: g/b}]
resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
containers: [{name: z, volumeMounts: [{mountPath: /b, name: b}, {mountPath: /a, name: a, readOnly: true}], volumeDevices: [{devicePath: /dev/a, name: b}], resources: {claims: [{name: gpu, request: r}]}}]`,
			warnings: []string{
				`policy a replaced spec.containers[z].volumeDevices[/dev/a].name: "a" is now "b"`,
				`policy a replaced spec.hostAliases[10.0.0.1].hostnames: ["x"] is now ["w"]`,
				`policy a replaced spec.resourceClaims[gpu]: {"resourceClaimName":"c"} is now {"resourceClaimTemplateName":"t"}`,
				`policy a replaced spec.volumes[a].emptyDir: {"medium":"Memory"} is now {}`,
			},
		},
		{
			name:     "sets by the element",
			object:   `containers: [{name: main, volumeMounts: [{mountPath: /a, name: a, bindMountOptions: [noexec]}]}]`,
			policies: []string{`overrides: {spec: {containers: {main: {volumeMounts: [{mountPath: /a, bindMountOptions: [nodev, noexec]}]}}}}`},
			want:     `containers: [{name: main, volumeMounts: [{mountPath: /a, name: a, bindMountOptions: [noexec, nodev]}]}]`,
		},
		{
			name:   "new elements by policy, in its order",
			object: `containers: [{name: main, env: [{name: M, value: m}]}]`,
			policies: []string{
				`{policy: b, overrides: {spec: {containers: {main: {env: [{name: Z, value: z}, {name: A, value: "$(Z)"}]}}}}}`,
				`{policy: a, overrides: {spec: {containers: {main: {env: [{name: X, value: x}, {name: A, value: "$(Z)"}]}}}}}`,
				`{policy: c, defaults: {spec: {containers: {main: {env: [{name: B, value: b}, {name: M, value: other}]}}}}}`,
			},
			want: `containers: [{name: main, env: [{name: M, value: m}, {name: X, value: x}, {name: A, value: $(Z)}, {name: Z, value: z}, {name: B, value: b}]}]`,
		},
		{
			name:     "a missing or duplicate key is an error",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {volumes: [{emptyDir: {}}, {name: a}, {name: a}], hostAliases: {"*": {}}, containers: {main: {ports: [{protocol: TCP}, {containerPort: "80"}]}}}}`},
			err: "policy a: spec.containers[main].ports: element 0 has no containerPort and protocol\n" +
				"policy a: spec.containers[main].ports: element 1 has no containerPort and protocol\n" +
				"policy a: spec.hostAliases: must be a list, not an object\n" +
				"policy a: spec.volumes: element 0 has no name\n" +
				"policy a: spec.volumes[a]: occurs twice",
		},
	})
}

func TestDuplicateElementsAreMerged(t *testing.T) {
	runCases(t, []mergeCase{
		{
			// Otherwise a policy would write the first, and the last would take effect.
			name:     "the last one stays",
			object:   `containers: [{name: main, env: [{name: LIMIT, value: "1"}, {name: B}, {name: LIMIT, value: "9"}]}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {env: [{name: LIMIT, value: "2"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: LIMIT, value: "2"}, {name: B}]}]`,
			warnings: []string{`policy a replaced spec.containers[main].env[LIMIT].value: "9" is now "2"`},
		},
		{
			name:     "even without another change",
			object:   `containers: [{name: main, env: [{name: LIMIT, value: "9"}, {name: LIMIT, value: "2"}]}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {env: [{name: LIMIT, value: "3"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: LIMIT, value: "2"}]}]`,
		},
		{
			name:     "a removal matches all",
			object:   `containers: [{name: main, env: [{name: A, value: "1"}, {name: B}, {name: A, value: "2"}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: A}]]`},
			want:     `containers: [{name: main, env: [{name: B}]}]`,
			warnings: []string{
				`policy a removed spec.containers[main].env[A], which was {"name":"A","value":"1"}`,
				`policy a removed spec.containers[main].env[A], which was {"name":"A","value":"2"}`,
			},
		},
		{
			name:     "a list without changes stays as it is",
			object:   `containers: [{name: main, env: [{name: A}, {name: A}], ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]`,
			policies: []string{`overrides: {spec: {hostname: h}}`},
			want:     `{hostname: h, containers: [{name: main, env: [{name: A}, {name: A}], ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]}`,
		},
		{
			name:     "the main container stays first",
			object:   `containers: [{name: main, image: a}, {name: side}, {name: main, image: b}]`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}}}}`},
			want:     `containers: [{name: main, image: b, tty: true}, {name: side}]`,
		},
	})
}

func TestContainers(t *testing.T) {
	const two = `{containers: [{name: main}, {name: side}], initContainers: [{name: prepare}]}`
	runCases(t, []mergeCase{
		{
			name:     "all, the main one, and by name",
			object:   two,
			policies: []string{`overrides: {spec: {containers: {"*": {tty: true}, "0": {stdin: true}, side: {stdinOnce: true}}}}`},
			want:     `{containers: [{name: main, tty: true, stdin: true}, {name: side, tty: true, stdinOnce: true}], initContainers: [{name: prepare}]}`,
		},
		{
			name:     "init and ephemeral ones where selected",
			object:   two,
			policies: []string{`overrides: {spec: {initContainers: {"*": {tty: true}}, ephemeralContainers: {"*": {tty: true}}}}`},
			want:     `{containers: [{name: main}, {name: side}], initContainers: [{name: prepare, tty: true}]}`,
		},
		{
			name:     "all includes those that policies add",
			object:   two,
			policies: []string{`overrides: {spec: {containers: {"*": {tty: true}, proxy: {stdin: true}}}}`, `defaults: {spec: {containers: [{name: proxy, image: proxy}]}}`},
			want:     `{containers: [{name: main, tty: true}, {name: side, tty: true}, {name: proxy, image: proxy, tty: true, stdin: true}], initContainers: [{name: prepare}]}`,
		},
		{
			name:     "a missing container is an error",
			object:   two,
			policies: []string{`overrides: {spec: {containers: {proxy: {tty: true}}, ephemeralContainers: {debug: {tty: true}}}}`, `append: [{path: [spec, initContainers, main, args], value: x}]`},
			err: "policy a: spec.containers: has no proxy, only main, side\n" +
				"policy a: spec.ephemeralContainers: has no debug: it is empty\n" +
				"policy b: spec.initContainers: has no main, only prepare",
		},
		{
			name:     "a missing main container is an error",
			object:   `{}`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}}}}`},
			err:      "policy a: spec.containers: has no 0: it is empty",
		},
		{
			name:     "0 selects the main container, even if another has that name",
			object:   `containers: [{name: main}, {name: "0"}, {name: "1"}]`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}, "1": {stdin: true}}}}`},
			want:     `containers: [{name: main, tty: true}, {name: "0"}, {name: "1", stdin: true}]`,
		},
	})
}

func TestAppend(t *testing.T) {
	const tolerations = `append: [{path: [spec, tolerations], value: {key: gpu, operator: Exists}}]`
	runCases(t, []mergeCase{
		{
			name:     "adds to the author's list",
			object:   `tolerations: [{key: mine, operator: Exists}]`,
			policies: []string{tolerations},
			want:     `tolerations: [{key: mine, operator: Exists}, {key: gpu, operator: Exists}]`,
			changes:  map[string][]string{"a": {"spec.tolerations"}},
		},
		{
			name:     "creates the list",
			object:   `{}`,
			policies: []string{tolerations, `append: [{path: [spec, affinity, nodeAffinity, preferredDuringSchedulingIgnoredDuringExecution], value: {weight: 1, preference: {}}}]`},
			want:     `{tolerations: [{key: gpu, operator: Exists}], affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}}`,
		},
		{
			name:     "not an equal element",
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
			name:     "after a default of the list",
			object:   `{}`,
			policies: []string{tolerations, `defaults: {spec: {tolerations: [{key: b, operator: Exists}]}}`},
			want:     `tolerations: [{key: b, operator: Exists}, {key: gpu, operator: Exists}]`,
		},
		{
			name:   "in an order that does not depend on the policies' order",
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
			err:      `policy a: append ["spec","affinity","nodeAffinity","requiredDuringSchedulingIgnoredDuringExecution","nodeSelectorTerms"]: terms are ORed, so another one would allow more nodes: use nodes`,
		},
		{
			name:   "to anything but an atomic list is an error",
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
policy a: append ["spec","$patch"]: $patch is a merge directive, which policies do not support
policy a: append ["spec","containers"]: is merged by name: use defaults or overrides
policy a: append ["spec","hostname"]: is a string, not a list
policy a: append ["spec","tolerance"]: a pod has no field tolerance there
policy a: append ["spec","tolerations","*","key"]: is a string, not a list
policy a: append ["spec","tolerations"]: the element.keys a pod has no such field
policy a: append ["spec","volumes",{"name":"v"},"projected","sources"]: leads into a part that is replaced as a whole: set all of it in overrides
policy a: append ["spec",1]: step 2, 1, does not lead into an object
policy a: append ["status","conditions"]: cannot be written by any policy
policy a: append []: cannot be written as a whole
policy a: spec.hostAliases: has no 10.0.0.1: it is empty`,
		},
	})
}

// affinity returns a spec with these required node selector terms.
func affinity(terms string) string {
	return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ` + terms + `}}}`
}

func TestNodeRequirementsNarrowEveryTerm(t *testing.T) {
	const (
		inPool  = `nodes: [{key: pool, operator: In, values: [b, a]}]`
		pool    = `{key: pool, operator: In, values: [a, b]}`
		changed = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	)
	runCases(t, []mergeCase{
		{
			name:     "a term is created if there is none",
			object:   `hostname: h`,
			policies: []string{inPool, `nodes: [{key: gpu, operator: Exists}, {key: pool, operator: In, values: [a, b, a]}]`},
			want:     `{hostname: h, ` + affinity(`[{matchExpressions: [{key: gpu, operator: Exists}, `+pool+`]}]`) + `}`,
			changes:  map[string][]string{"a": {changed}, "b": {changed}},
		},
		{
			// Terms are ORed: a term beside these would let the pod run elsewhere.
			name:     "each term gets it",
			object:   affinity(`[{matchExpressions: [{key: zone, operator: In, values: [z]}]}, {matchFields: [{key: metadata.name, operator: In, values: [node]}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: In, values: [z]}, ` + pool + `]}, {matchFields: [{key: metadata.name, operator: In, values: [node]}], matchExpressions: [` + pool + `]}]`),
		},
		{
			// A term without expressions matches no node; with one it would match.
			name:     "an empty term stays empty",
			object:   affinity(`[{}, {matchExpressions: []}, {matchExpressions: [{key: zone, operator: Exists}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{}, {matchExpressions: []}, {matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
		},
		{
			name:     "an affinity without terms stays empty",
			object:   affinity(`[]`),
			policies: []string{inPool},
			changes:  map[string][]string{},
		},
		{
			name:     "an equal one is not added",
			object:   affinity(`[{matchExpressions: [{key: pool, operator: In, values: [b, a]}]}]`),
			policies: []string{inPool},
			changes:  map[string][]string{},
		},
		{
			name:     "another one with the same key stays",
			object:   affinity(`[{matchExpressions: [{key: pool, operator: In, values: [a, b, c]}]}]`),
			policies: []string{inPool},
			want:     affinity(`[{matchExpressions: [{key: pool, operator: In, values: [a, b, c]}, ` + pool + `]}]`),
		},
		{
			name:     "preferred terms stay",
			object:   `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}`,
			policies: []string{inPool},
			want:     `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}], requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [` + pool + `]}]}}}`,
		},
		{
			name:     "terms of another policy's default and override",
			object:   `{}`,
			policies: []string{inPool, `defaults: {spec: {` + affinity(`[{matchExpressions: [{key: zone, operator: Exists}]}]`) + `}}`},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
		},
		{
			name:     "terms of an override",
			object:   affinity(`[{matchExpressions: [{key: mine, operator: Exists}]}]`),
			policies: []string{inPool, `overrides: {spec: {` + affinity(`[{matchExpressions: [{key: zone, operator: Exists}]}]`) + `}}`},
			want:     affinity(`[{matchExpressions: [{key: zone, operator: Exists}, ` + pool + `]}]`),
			warnings: []string{`policy b replaced ` + changed + `: {"nodeSelectorTerms":[{"matchExpressions":[{"key":"mine","op... is now {"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","op...`},
		},
		{
			name:     "a missing key is an error",
			object:   `{}`,
			policies: []string{`nodes: [{operator: Exists}, {key: a}]`},
			err: `policy a: nodes: a requirement needs a key and an operator, and is {"key":"","operator":"Exists"}` + "\n" +
				`policy a: nodes: a requirement needs a key and an operator, and is {"key":"a","operator":""}`,
		},
		{
			name:     "a removed affinity is a conflict",
			object:   affinity(`[{matchExpressions: [{key: mine, operator: Exists}]}]`),
			policies: []string{inPool, `overrides: {spec: {affinity: null}}`},
			err:      `policies conflict: spec.affinity: policy a sets a part of it, policy b removes it`,
		},
	})
}
