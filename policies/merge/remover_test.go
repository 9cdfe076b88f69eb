// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"
)

func TestRemove(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:     "elements by their key, everywhere",
			object:   `{containers: [{name: main, env: [{name: A, value: a}, {name: X, value: x}]}, {name: side, env: [{name: X}]}], initContainers: [{name: prepare, env: [{name: X}]}]}`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: X}]]`},
			want:     `{containers: [{name: main, env: [{name: A, value: a}]}, {name: side}], initContainers: [{name: prepare, env: [{name: X}]}]}`,
			warnings: []string{
				`policy a removed spec.containers[main].env[X], which was {"name":"X","value":"x"}`,
				`policy a removed spec.containers[side].env[X], which was {"name":"X"}`,
			},
			changes: map[string][]string{"a": {"spec.containers[main].env[X]", "spec.containers[side].env[X]"}},
		},
		{
			name:     "elements by any field",
			object:   `containers: [{name: main, env: [{name: A, value: all}, {name: B, value: none}]}, {name: side, env: [{name: C, value: all}]}]`,
			policies: []string{`remove: [[spec, containers, "0", env, {value: all}], [spec, containers, side, env, {name: C, value: none}]]`},
			want:     `containers: [{name: main, env: [{name: B, value: none}]}, {name: side, env: [{name: C, value: all}]}]`,
			warnings: []string{`policy a removed spec.containers[main].env[A], which was {"name":"A","value":"all"}`},
		},
		{
			name:     "fields, entries and elements of atomic lists",
			object:   `{hostPID: true, nodeSelector: {a: b, c: d}, tolerations: [{key: x}, {operator: Exists}], containers: [{name: main, securityContext: {capabilities: {add: [SYS_ADMIN, NET_ADMIN]}}}]}`,
			policies: []string{`remove: [[spec, hostPID], [spec, nodeSelector, a], [spec, tolerations, {operator: Exists}], [spec, containers, "*", securityContext, capabilities, add, SYS_ADMIN]]`},
			want:     `{nodeSelector: {c: d}, tolerations: [{key: x}], containers: [{name: main, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}`,
			warnings: []string{
				`policy a removed spec.containers[main].securityContext.capabilities.add[0], which was "SYS_ADMIN"`,
				`policy a removed spec.hostPID, which was true`,
				`policy a removed spec.nodeSelector[a], which was "b"`,
				`policy a removed spec.tolerations[1], which was {"operator":"Exists"}`,
			},
		},
		{
			name:     "ports with a default protocol",
			object:   `containers: [{name: main, ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]}]`,
			policies: []string{`remove: [[spec, containers, "*", ports, {containerPort: 53, protocol: TCP}]]`},
			want:     `containers: [{name: main, ports: [{containerPort: 53, protocol: UDP}]}]`,
			warnings: []string{`policy a removed spec.containers[main].ports[53/TCP], which was {"containerPort":53}`},
		},
		{
			name:     "nothing absent",
			object:   `containers: [{name: main}]`,
			policies: []string{`remove: [[spec, containers, other, env, {name: X}], [spec, hostPID], [spec, nodeSelector, "*"], [spec, tolerations, "*"]]`},
			changes:  map[string][]string{},
		},
		{
			name:     "nothing that the API server would set again",
			object:   `{schedulerName: default-scheduler, tolerations: [{key: x}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}], containers: [{name: main, resources: {limits: {cpu: "1"}, requests: {cpu: "1", memory: 1Gi}}}]}`,
			policies: []string{`remove: [[spec, schedulerName], [spec, tolerations, "*"], [spec, containers, "*", resources, requests, "*"]]`},
			want:     `{schedulerName: default-scheduler, tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}], containers: [{name: main, resources: {limits: {cpu: "1"}, requests: {cpu: "1"}}}]}`,
			warnings: []string{
				`policy a removed spec.containers[main].resources.requests[memory], which was "1Gi"`,
				`policy a removed spec.tolerations[0], which was {"key":"x"}`,
			},
		},
		{
			name: "the token of a pod that disables it",
			object: `
serviceAccountName: default
volumes: [{name: kube-api-access-x, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}}]
containers: [{name: main, volumeMounts: [{name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]}]`,
			policies: []string{`
overrides: {spec: {automountServiceAccountToken: false}}
remove:
- [spec, volumes, {name: kube-api-access-x}]
- [spec, containers, "*", volumeMounts, {mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]`},
			want: `{serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: main}]}`,
			warnings: []string{
				`policy a removed spec.containers[main].volumeMounts[/var/run/secrets/kubernetes.io/serviceaccount], which was {"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"...`,
				`policy a removed spec.volumes[kube-api-access-x], which was {"name":"kube-api-access-x","projected":{"defaultMode":420,"...`,
			},
		},
		{
			name:     "before defaults, none of which comes back",
			object:   `{tolerations: [{key: x}], containers: [{name: main}]}`,
			policies: []string{`remove: [[spec, tolerations, {key: x}], [spec, containers, "*", env, {name: X}]]`, `defaults: {spec: {tolerations: [{key: b}, {key: x}], containers: {"*": {env: [{name: X, value: x}]}}}}`},
			want:     `{tolerations: [{key: b}], containers: [{name: main}]}`,
			warnings: []string{`policy a removed spec.tolerations[0], which was {"key":"x"}`},
			changes:  map[string][]string{"a": {"spec.tolerations[0]"}, "b": {"spec.tolerations"}},
		},
		{
			name:     "two policies",
			object:   `hostPID: true`,
			policies: []string{`remove: [[spec, hostPID]]`, `remove: [[spec, hostPID]]`},
			want:     `{}`,
			warnings: []string{`policies a and b removed spec.hostPID, which was true`},
		},
		{
			name:   "unknown and protected fields are errors",
			object: `containers: [{name: main}]`,
			policies: []string{`
remove:
- [spec, host]
- [spec]
- [metadata, name]
- [metadata, labels]
- [status, phase]
- [spec, containers, "0"]
- [spec, containers, "*", name]
- [spec, containers, "*", ports, "*", protocol]
- [spec, containers, {named: x}]
- [spec, containers, {name: 1}]
- [spec, containers, {}]
- [spec, volumes, x]
- [spec, containers, 0]
- [spec, hostname, x]`},
			err: `policy a: remove ["metadata","name"]: cannot be written by any policy
policy a: remove ["spec","containers","*","name"]: identifies the elements of the list: remove the element
policy a: remove ["spec","containers","*","ports","*","protocol"]: identifies the elements of the list: remove the element
policy a: remove ["spec","containers","0"]: would remove one main container after another: name the container
policy a: remove ["spec","containers",0]: elements are selected by "*" or by fields, not by the number 0
policy a: remove ["spec","containers",{"name":1}]: name must be a string, not the number 1
policy a: remove ["spec","containers",{"named":"x"}]: elements have no field named
policy a: remove ["spec","containers",{}]: {} selects no element
policy a: remove ["spec","host"]: a pod has no field host there
policy a: remove ["spec","hostname","x"]: step 3, "x", does not lead into a string
policy a: remove ["spec","volumes","x"]: elements are selected by "*" or by fields, as in {"name": "X"}, not by "x"
policy a: remove ["spec"]: cannot be written as a whole
policy a: remove ["status","phase"]: cannot be written by any policy`,
		},
	})
}
