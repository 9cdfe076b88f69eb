// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

func TestElementsMergeByAllKeys(t *testing.T) {
	check(t, []example{
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
			name:     "topology spread by key and by what happens",
			object:   `topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}]`,
			policies: []string{`defaults: {spec: {topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, maxSkew: 2}, {topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 3, minDomains: 2}]}}`},
			want:     `topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1, minDomains: 2}, {topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, maxSkew: 2}]`,
		},
		{
			name: "all others by their one key, in the author's order",
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
			name:   "new ones by policy, in its order",
			object: `containers: [{name: main, env: [{name: M, value: m}]}]`,
			policies: []string{
				`{policy: b, overrides: {spec: {containers: {main: {env: [{name: Z, value: z}, {name: A, value: "$(Z)"}]}}}}}`,
				`{policy: a, overrides: {spec: {containers: {main: {env: [{name: X, value: x}, {name: A, value: "$(Z)"}]}}}}}`,
				`{policy: c, defaults: {spec: {containers: {main: {env: [{name: B, value: b}, {name: M, value: other}]}}}}}`,
			},
			want: `containers: [{name: main, env: [{name: M, value: m}, {name: X, value: x}, {name: A, value: $(Z)}, {name: Z, value: z}, {name: B, value: b}]}]`,
		},
		{
			name:     "without its key or twice is an error",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {volumes: [{emptyDir: {}}, {name: a}, {name: a}], hostAliases: {"*": {}}, containers: {main: {ports: [{protocol: TCP}, {containerPort: "80"}]}}}}`},
			err: "policy a: spec.containers[main].ports: element 0 does not say its containerPort and protocol\n" +
				"policy a: spec.containers[main].ports: element 1 does not say its containerPort and protocol\n" +
				"policy a: spec.hostAliases: is a list, not an object\n" +
				"policy a: spec.volumes: element 0 does not say its name\n" +
				"policy a: spec.volumes[a]: is there twice",
		},
	})
}

func TestElementsThatOccurTwiceAreOne(t *testing.T) {
	check(t, []example{
		{
			// Else the first would be written and the last take effect.
			name:     "the last one is kept",
			object:   `containers: [{name: main, env: [{name: LIMIT, value: "1"}, {name: B}, {name: LIMIT, value: "9"}]}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {env: [{name: LIMIT, value: "2"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: LIMIT, value: "2"}, {name: B}]}]`,
			warnings: []string{`policy a replaced spec.containers[main].env[LIMIT].value: "9" is now "2"`},
		},
		{
			name:     "also where nothing else is to change",
			object:   `containers: [{name: main, env: [{name: LIMIT, value: "9"}, {name: LIMIT, value: "2"}]}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {env: [{name: LIMIT, value: "3"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: LIMIT, value: "2"}]}]`,
		},
		{
			name:     "a removal finds all",
			object:   `containers: [{name: main, env: [{name: A, value: "1"}, {name: B}, {name: A, value: "2"}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: A}]]`},
			want:     `containers: [{name: main, env: [{name: B}]}]`,
			warnings: []string{
				`policy a removed spec.containers[main].env[A], which was {"name":"A","value":"1"}`,
				`policy a removed spec.containers[main].env[A], which was {"name":"A","value":"2"}`,
			},
		},
		{
			name:     "a list of which no policy speaks is let be",
			object:   `containers: [{name: main, env: [{name: A}, {name: A}], ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]`,
			policies: []string{`overrides: {spec: {hostname: h}}`},
			want:     `{hostname: h, containers: [{name: main, env: [{name: A}, {name: A}], ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]}`,
		},
		{
			name:     "the main container stays the first",
			object:   `containers: [{name: main, image: a}, {name: side}, {name: main, image: b}]`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}}}}`},
			want:     `containers: [{name: main, image: b, tty: true}, {name: side}]`,
		},
	})
}

func TestContainers(t *testing.T) {
	const two = `{containers: [{name: main}, {name: side}], initContainers: [{name: prepare}]}`
	check(t, []example{
		{
			name:     "all, the main one, and by name",
			object:   two,
			policies: []string{`overrides: {spec: {containers: {"*": {tty: true}, "0": {stdin: true}, side: {stdinOnce: true}}}}`},
			want:     `{containers: [{name: main, tty: true, stdin: true}, {name: side, tty: true, stdinOnce: true}], initContainers: [{name: prepare}]}`,
		},
		{
			name:     "init and ephemeral ones where asked",
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
			name:     "one that is not there is an error",
			object:   two,
			policies: []string{`overrides: {spec: {containers: {proxy: {tty: true}}, ephemeralContainers: {debug: {tty: true}}}}`, `append: [{path: [spec, initContainers, main, args], value: x}]`},
			err: "policy a: spec.containers: has no proxy, only main, side\n" +
				"policy a: spec.ephemeralContainers: has no debug: it is empty\n" +
				"policy b: spec.initContainers: has no main, only prepare",
		},
		{
			name:     "no main one is an error",
			object:   `{}`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}}}}`},
			err:      "policy a: spec.containers: has no 0: it is empty",
		},
		{
			name:     "called 0 is the main one's name only if it is",
			object:   `containers: [{name: main}, {name: "0"}, {name: "1"}]`,
			policies: []string{`overrides: {spec: {containers: {"0": {tty: true}, "1": {stdin: true}}}}`},
			want:     `containers: [{name: main, tty: true}, {name: "0"}, {name: "1", stdin: true}]`,
		},
	})
}
