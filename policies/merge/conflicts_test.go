// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/policies/merge/schema"
)

func TestConflicts(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:   "different values at one path",
			object: `containers: [{name: main}, {name: side}]`,
			policies: []string{
				`overrides: {spec: {schedulerName: kai, containers: {"*": {imagePullPolicy: Always}}}}`,
				`overrides: {spec: {schedulerName: volcano, containers: {main: {imagePullPolicy: Never}}}}`,
				`overrides: {spec: {schedulerName: kai}}`,
			},
			err: `policies conflict: spec.containers[main].imagePullPolicy: policy a sets "Always", policy b sets "Never"; ` +
				`spec.schedulerName: policies a and c set "kai", policy b sets "volcano"`,
		},
		{
			name:     "different defaults, even where the author set a value",
			object:   `hostname: h`,
			policies: []string{`defaults: {spec: {hostname: a}}`, `defaults: {spec: {hostname: b}}`},
			err:      `policies conflict: spec.hostname: policy a sets "a", policy b sets "b"`,
		},
		{
			name:     "not different defaults under an override",
			object:   `hostname: h`,
			policies: []string{`defaults: {spec: {hostname: a}}`, `defaults: {spec: {hostname: b}}`, `overrides: {spec: {hostname: c}}`},
			want:     `hostname: c`,
			warnings: []string{`policy c replaced spec.hostname: "h" is now "c"`},
		},
		{
			name:     "one policy with itself",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {tty: true}, "0": {tty: false}}}}`},
			err:      `policies conflict: spec.containers[main].tty: policy a sets false, policy a sets true`,
		},
		{
			name:     "atomic lists and unions that differ",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {args: [a], env: [{name: X, value: a}]}}}}`, `overrides: {spec: {containers: {"*": {args: [a, b], env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}}}`},
			err: `policies conflict: spec.containers[main].args: policy a sets ["a"], policy b sets ["a","b"]; ` +
				`spec.containers[main].env[X]: policy a sets {"value":"a"}, policy b sets {"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`,
		},
		{
			name:     "not a field that is absent in one and default in the other",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {livenessProbe: {httpGet: {port: 80}}}}}}`, `overrides: {spec: {containers: {"*": {livenessProbe: {httpGet: {port: 80, path: /}}}}}}`},
			want:     `containers: [{name: main, livenessProbe: {httpGet: {port: 80, path: /}}}]`,
		},
		{
			name:     "a removal and a value",
			object:   `{hostname: h, containers: [{name: main, env: [{name: X}], livenessProbe: {exec: {command: [a]}}}]}`,
			policies: []string{`overrides: {spec: {hostname: null, containers: {"*": {livenessProbe: null}}}}`, `overrides: {spec: {hostname: b, containers: {main: {livenessProbe: {periodSeconds: 5}}}}}`},
			err: `policies conflict: spec.containers[main].livenessProbe: policy a removes it, policy b sets a part of it; ` +
				`spec.hostname: policy a removes it, policy b sets "b"`,
		},
		{
			name:     "a removal by path and a value",
			object:   `containers: [{name: main, env: [{name: X, value: x}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: X}]]`, `overrides: {spec: {containers: {"*": {env: [{name: X, value: "1"}]}}}}`},
			err:      `policies conflict: spec.containers[main].env[X]: policy a removes it, policy b sets {"name":"X","value":"1"}`,
		},
		{
			name:     "a removal in an atomic list that another policy writes",
			object:   `{}`,
			policies: []string{`remove: [[spec, tolerations, {operator: Exists}]]`, `overrides: {spec: {tolerations: [{key: a, operator: Exists}]}}`},
			err:      `policies conflict: spec.tolerations[0]: policy a removes it, policy b sets {"key":"a","operator":"Exists"}`,
		},
		{
			name:     "a removal of an element that another policy appends",
			object:   `tolerations: [{key: a}]`,
			policies: []string{`remove: [[spec, tolerations, {operator: Exists}]]`, `append: [{path: [spec, tolerations], value: {key: b}}, {path: [spec, tolerations], value: {key: c, operator: Exists}}]`, `append: [{path: [spec, tolerations], value: {key: d}}]`},
			err:      `policies conflict: spec.tolerations[2]: policy a removes it, policy b sets {"key":"c","operator":"Exists"}`,
		},
		{
			name:     "a removal of a node requirement",
			object:   `{}`,
			policies: []string{`remove: [[spec, affinity]]`, `nodes: [{key: a, operator: Exists}]`},
			err:      `policies conflict: spec.affinity: policy a removes it, policy b sets {"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecu...`,
		},
		{
			name:     "a removal of a container that another policy names",
			object:   `containers: [{name: main}, {name: side}]`,
			policies: []string{`remove: [[spec, containers, {name: side}]]`, `defaults: {spec: {containers: {side: {tty: true}}}}`},
			err:      `policies conflict: spec.containers[side]: policy a removes it, policy b sets a part of it`,
		},
		{
			name:     "not a removal of a container that another policy selects by *",
			object:   `containers: [{name: main}, {name: side}]`,
			policies: []string{`remove: [[spec, containers, {name: side}]]`, `defaults: {spec: {containers: {"*": {tty: true}}}}`},
			want:     `containers: [{name: main, tty: true}]`,
			warnings: []string{`policy a removed spec.containers[side], which was {"name":"side"}`},
		},
		{
			name:     "not a removal of another union member",
			object:   `containers: [{name: main, env: [{name: X, value: all}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: X, value: all}]]`, `overrides: {spec: {containers: {"*": {env: [{name: X, value: "1"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: X, value: "1"}]}]`,
			warnings: []string{`policy a removed spec.containers[main].env[X], which was {"name":"X","value":"all"}`},
		},
		{
			name:   "the message has the first four",
			object: `{}`,
			policies: []string{
				`overrides: {spec: {nodeSelector: {a: a, b: a, c: a, d: a, e: a, f: a}}}`,
				`overrides: {spec: {nodeSelector: {a: b, b: b, c: b, d: b, e: b, f: b}}}`,
			},
			err: `policies conflict: spec.nodeSelector[a]: policy a sets "a", policy b sets "b"; spec.nodeSelector[b]: policy a sets "a", policy b sets "b"; ` +
				`spec.nodeSelector[c]: policy a sets "a", policy b sets "b"; spec.nodeSelector[d]: policy a sets "a", policy b sets "b"; and 2 more`,
		},
	})
}

func TestInvalidChanges(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:   "identity, owners and status",
			object: `metadata: {name: x, uid: "1"}`,
			policies: []string{`
overrides:
  apiVersion: v2
  kind: Node
  metadata: {name: "", namespace: x, generateName: x, uid: x, creationTimestamp: x, deletionTimestamp: x, resourceVersion: x, generation: 1, ownerReferences: [], finalizers: [], managedFields: [], selfLink: x}
  status: {phase: Running}`},
			err: `policy a: apiVersion: cannot be written by any policy
policy a: kind: cannot be written by any policy
policy a: metadata.creationTimestamp: cannot be written by any policy
policy a: metadata.deletionTimestamp: cannot be written by any policy
policy a: metadata.finalizers: cannot be written by any policy
policy a: metadata.generateName: cannot be written by any policy
policy a: metadata.generation: cannot be written by any policy
policy a: metadata.managedFields: cannot be written by any policy
policy a: metadata.name: cannot be written by any policy
policy a: metadata.namespace: cannot be written by any policy
policy a: metadata.ownerReferences: cannot be written by any policy
policy a: metadata.resourceVersion: cannot be written by any policy
policy a: metadata.selfLink: cannot be written by any policy
policy a: metadata.uid: cannot be written by any policy
policy a: status: cannot be written by any policy`,
		},
		{
			name:     "the object as a whole",
			object:   `metadata: {name: x}`,
			policies: []string{`overrides: {metadata: null, spec: null}`},
			err: `policy a: metadata: cannot be removed
policy a: spec: cannot be removed`,
		},
		{
			name:   "unknown fields at any place",
			object: `containers: [{name: main}]`,
			policies: []string{`
defaults: {spec: {schedulername: kai, containers: {main: {env: [{name: A, valueFrom: {secretRef: {}}}]}}}}
overrides: {specs: {}, metadata: {label: {}}, spec: {tolerations: [{keys: a}]}}`},
			err: `policy a: metadata.label: a pod has no such field
policy a: spec.containers[main].env[A].valueFrom.secretRef: a pod has no such field
policy a: spec.schedulername: a pod has no such field; did you mean schedulerName?
policy a: spec.tolerations[0].keys: a pod has no such field
policy a: specs: a pod has no such field`,
		},
		{
			name:   "values of another type",
			object: `containers: [{name: main}]`,
			policies: []string{`
overrides:
  metadata: {labels: {a: 1}}
  spec:
    hostNetwork: "true"
    priority: 1.5
    schedulerName: [kai]
    affinity: x
    containers: {main: {resources: {limits: {cpu: lots, memory: 1e2147483647}}, command: sh, ports: 80, livenessProbe: {httpGet: {port: true}}}}
    tolerations: [null, {tolerationSeconds: null}]`},
			err: `policy a: metadata.labels[a]: must be a string, not the number 1
policy a: spec.affinity: must be an object, not the string "x"
policy a: spec.containers[main].command: must be a list, not the string "sh"
policy a: spec.containers[main].livenessProbe.httpGet.port: must be a whole number or a string, not a boolean
policy a: spec.containers[main].ports: must be a list, not the number 80
policy a: spec.containers[main].resources.limits[cpu]: must be a quantity, not the string "lots"
policy a: spec.containers[main].resources.limits[memory]: must be a quantity, not the string "1e2147483647"
policy a: spec.hostNetwork: must be a boolean, not the string "true"
policy a: spec.priority: must be a whole number, not the number 1.5
policy a: spec.schedulerName: must be a string, not a list
policy a: spec.tolerations[0]: is null, which has nothing to remove here`,
		},
		{
			name:     "directives of other merge formats",
			object:   `{}`,
			policies: []string{`overrides: {$patch: replace, metadata: {labels: {$retainKeys: a}}, spec: {$setElementOrder/containers: [], tolerations: [{$patch: delete}]}}`},
			err: `policy a: $patch: is a merge directive, which policies do not support: use remove, append or null in overrides
policy a: metadata.labels.$retainKeys: is a merge directive, which policies do not support: use remove, append or null in overrides
policy a: spec.$setElementOrder/containers: is a merge directive, which policies do not support: use remove, append or null in overrides
policy a: spec.tolerations[0].$patch: a pod has no such field`,
		},
		{
			name:     "directives in the object are plain data",
			object:   `{$patch: delete, containers: [{name: main, $patch: replace, env: [{name: A, $patch: delete}]}]}`,
			policies: []string{`{defaults: {spec: {hostname: h}}, overrides: {spec: {containers: {main: {env: [{name: A, value: a}], tty: true}}}}}`},
			want:     `{hostname: h, $patch: delete, containers: [{name: main, $patch: replace, tty: true, env: [{name: A, $patch: delete, value: a}]}]}`,
			warnings: []string{`policy a replaced spec.containers[main].env[A].value: "" is now "a"`},
		},
	})
}

func TestInvalidObjects(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:     "a wrong type where a policy writes",
			object:   `{containers: x, nodeSelector: [], affinity: 1}`,
			policies: []string{`overrides: {spec: {containers: [{name: a}]}}`},
			err:      `spec.containers: must be a list, not the string "x"`,
		},
		{
			name:     "a wrong type in a nested part",
			object:   `containers: [{name: main, resources: {limits: 5}}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {resources: {limits: {cpu: 1}}}}}}`},
			err:      `spec.containers[main].resources.limits: must be an object, not the number 5`,
		},
		{
			name:     "not where no policy writes",
			object:   `{containers: x, volumes: [1, null, {name: 5}, {}], tolerations: {}}`,
			policies: []string{`{overrides: {spec: {hostname: h, volumes: [{name: v, emptyDir: {}}]}}, remove: [[spec, containers, "*", env], [spec, tolerations, "*"]]}`},
			want:     `{hostname: h, containers: x, volumes: [1, null, {name: 5}, {}, {name: v, emptyDir: {}}], tolerations: {}}`,
		},
	})
}

func TestLimits(t *testing.T) {
	deep := any("x")
	for range 150 {
		deep = map[string]any{"x": deep}
	}
	many := make([]any, maxValues)
	wide := map[string]any{}
	for i := range maxDesiredValues {
		wide[strings.Repeat("x", 1+i%50)+string(rune('a'+i/50%26))+string(rune('a'+i/1300))] = "x"
	}
	containers := make([]any, 1000)
	for i := range containers {
		containers[i] = map[string]any{"name": strings.Repeat("x", i+1)}
	}
	env := make([]any, 200)
	for i := range env {
		env[i] = map[string]any{"name": strings.Repeat("x", i+1), "value": "x"}
	}
	spec := func(v map[string]any) map[string]any { return map[string]any{"spec": v} }
	tests := []struct {
		name   string
		object map[string]any
		intent DesiredChanges
		err    string
	}{
		{"a deep object", spec(map[string]any{"x": deep}), DesiredChanges{}, "the object is too large to evaluate: it may have 100 levels and 200000 values"},
		{"a long object", spec(map[string]any{"x": many}), DesiredChanges{}, "the object is too large to evaluate: it may have 100 levels and 200000 values"},
		{"deep changes", nil, DesiredChanges{Policy: "p", Defaults: spec(map[string]any{"x": deep})}, "policy p: result: is too large: it may have 100 levels and 10000 values"},
		{"many changes", nil, DesiredChanges{Policy: "p", Overrides: spec(map[string]any{"nodeSelector": wide})}, "policy p: result: is too large: it may have 100 levels and 10000 values"},
		{"a long path", nil, DesiredChanges{Policy: "p", Remove: []Path{{"spec", "containers", deep}}}, "policy p: result: is too large: it may have 100 levels and 10000 values"},
		{"many paths", nil, DesiredChanges{Policy: "p", Remove: make([]Path, 1001)}, "policy p: result: is too large: remove may have 1000 entries"},
		{
			"many changes for many containers", spec(map[string]any{"containers": containers}),
			DesiredChanges{Policy: "p", Overrides: spec(map[string]any{"containers": map[string]any{"*": map[string]any{"env": env}}})},
			`policy p: result: is too large for this object: all policies together may change 100000 of its parts, with "*" counted for each container`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Apply(tt.object, []DesiredChanges{tt.intent}, schema.ClusterDefaults{})
			if errorText(err) != tt.err {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestErrorTypes(t *testing.T) {
	apply := func(policies ...string) error {
		_, err := Apply(map[string]any{"spec": "x"}, mergeCase{policies: policies}.desiredChanges(t), schema.ClusterDefaults{})
		return err
	}
	var conflict *ConflictError
	if err := apply(`overrides: {spec: {hostname: a}}`, `overrides: {spec: {hostname: b}}`); !errors.As(err, &conflict) || conflict.Conflicts[0].Desired[1].Policies[0] != "b" {
		t.Errorf("got %v", err)
	}
	var invalid *InvalidChangesError
	if err := apply(`overrides: {spec: {x: a}}`, `overrides: {spec: {y: b}}`); !errors.As(err, &invalid) || invalid.Policy != "a" || invalid.Path != "spec.x" {
		t.Errorf("got %v", err)
	}
	var shape *InvalidObjectError
	if err := apply(`overrides: {spec: {hostname: a}}`); !errors.As(err, &shape) || shape.Path != "spec" {
		t.Errorf("got %v", err)
	}
}
