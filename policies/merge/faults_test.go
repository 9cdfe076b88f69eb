// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
)

func TestIntentsThatCannotBe(t *testing.T) {
	check(t, []example{
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
			name:   "unknown fields, wherever they are",
			object: `containers: [{name: main}]`,
			policies: []string{`
defaults: {spec: {schedulername: kai, containers: {main: {env: [{name: A, valueFrom: {secretRef: {}}}]}}}}
overrides: {specs: {}, metadata: {label: {}}, spec: {tolerations: [{keys: a}]}}`},
			err: `policy a: metadata.label: a pod has no such field
policy a: spec.containers[main].env[A].valueFrom.secretRef: a pod has no such field
policy a: spec.schedulername: a pod has no such field; is schedulerName meant?
policy a: spec.tolerations[0].keys: a pod has no such field
policy a: specs: a pod has no such field`,
		},
		{
			name:   "values of another kind",
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
			err: `policy a: metadata.labels[a]: is a string, not the number 1
policy a: spec.affinity: is an object, not the string "x"
policy a: spec.containers[main].command: is a list, not the string "sh"
policy a: spec.containers[main].livenessProbe.httpGet.port: is a whole number or a string, not a boolean
policy a: spec.containers[main].ports: is a list, not the number 80
policy a: spec.containers[main].resources.limits[cpu]: is a quantity, not the string "lots"
policy a: spec.containers[main].resources.limits[memory]: is a quantity, not the string "1e2147483647"
policy a: spec.hostNetwork: is a boolean, not the string "true"
policy a: spec.priority: is a whole number, not the number 1.5
policy a: spec.schedulerName: is a string, not a list
policy a: spec.tolerations[0]: is null, which has nothing to remove here`,
		},
		{
			name:     "directives of other mergers",
			object:   `{}`,
			policies: []string{`overrides: {$patch: replace, metadata: {labels: {$retainKeys: a}}, spec: {$setElementOrder/containers: [], tolerations: [{$patch: delete}]}}`},
			err: `policy a: $patch: is a directive, of which there are none: use remove, append or null in overrides
policy a: metadata.labels.$retainKeys: is a directive, of which there are none: use remove, append or null in overrides
policy a: spec.$setElementOrder/containers: is a directive, of which there are none: use remove, append or null in overrides
policy a: spec.tolerations[0].$patch: a pod has no such field`,
		},
		{
			name:     "which in the object are plain data",
			object:   `{$patch: delete, containers: [{name: main, $patch: replace, env: [{name: A, $patch: delete}]}]}`,
			policies: []string{`{defaults: {spec: {hostname: h}}, overrides: {spec: {containers: {main: {env: [{name: A, value: a}], tty: true}}}}}`},
			want:     `{hostname: h, $patch: delete, containers: [{name: main, $patch: replace, tty: true, env: [{name: A, $patch: delete, value: a}]}]}`,
			warnings: []string{`policy a replaced spec.containers[main].env[A].value: "" is now "a"`},
		},
	})
}

func TestObjectsThatAreNoPod(t *testing.T) {
	check(t, []example{
		{
			name:     "where a policy writes",
			object:   `{containers: x, nodeSelector: [], affinity: 1}`,
			policies: []string{`overrides: {spec: {containers: [{name: a}]}}`},
			err:      `spec.containers: is a list, not the string "x"`,
		},
		{
			name:     "in depth",
			object:   `containers: [{name: main, resources: {limits: 5}}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {resources: {limits: {cpu: 1}}}}}}`},
			err:      `spec.containers[main].resources.limits: is an object, not the number 5`,
		},
		{
			name:     "but not where none does",
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
	many := make([]any, mostValues)
	wide := map[string]any{}
	for i := range mostWanted {
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
		intent intent.Intent
		err    string
	}{
		{"a deep object", spec(map[string]any{"x": deep}), intent.Intent{}, "the object is too large to judge: it may have 100 levels and 200000 values"},
		{"a long object", spec(map[string]any{"x": many}), intent.Intent{}, "the object is too large to judge: it may have 100 levels and 200000 values"},
		{"a deep intent", nil, intent.Intent{Policy: "p", Defaults: spec(map[string]any{"x": deep})}, "policy p: intent: is too large: it may have 100 levels and 10000 values"},
		{"a wide intent", nil, intent.Intent{Policy: "p", Overrides: spec(map[string]any{"nodeSelector": wide})}, "policy p: intent: is too large: it may have 100 levels and 10000 values"},
		{"a deep path", nil, intent.Intent{Policy: "p", Remove: []intent.Path{{"spec", "containers", deep}}}, "policy p: intent: is too large: it may have 100 levels and 10000 values"},
		{"many paths", nil, intent.Intent{Policy: "p", Remove: make([]intent.Path, 1001)}, "policy p: intent: is too large: remove may have 1000 entries"},
		{
			"much for many containers", spec(map[string]any{"containers": containers}),
			intent.Intent{Policy: "p", Overrides: spec(map[string]any{"containers": map[string]any{"*": map[string]any{"env": env}}})},
			`policy p: intent: is too large for this object: with "*" counted for each container, all policies may speak of 100000 of its parts`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Apply(tt.object, []intent.Intent{tt.intent}, filled.Cluster{})
			if text(err) != tt.err {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestErrorsCanBeToldApart(t *testing.T) {
	apply := func(policies ...string) error {
		_, err := Apply(map[string]any{"spec": "x"}, example{policies: policies}.intents(t), filled.Cluster{})
		return err
	}
	var conflict *ConflictError
	if err := apply(`overrides: {spec: {hostname: a}}`, `overrides: {spec: {hostname: b}}`); !errors.As(err, &conflict) || conflict.Conflicts[0].Wants[1].Policies[0] != "b" {
		t.Errorf("got %v", err)
	}
	var fault *IntentError
	if err := apply(`overrides: {spec: {x: a}}`, `overrides: {spec: {y: b}}`); !errors.As(err, &fault) || fault.Policy != "a" || fault.Path != "spec.x" {
		t.Errorf("got %v", err)
	}
	var shape *ObjectError
	if err := apply(`overrides: {spec: {hostname: a}}`); !errors.As(err, &shape) || shape.Path != "spec" {
		t.Errorf("got %v", err)
	}
}
