// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

func TestConflicts(t *testing.T) {
	check(t, []example{
		{
			name:   "different values at one path",
			object: `containers: [{name: main}, {name: side}]`,
			policies: []string{
				`overrides: {spec: {schedulerName: kai, containers: {"*": {imagePullPolicy: Always}}}}`,
				`overrides: {spec: {schedulerName: volcano, containers: {main: {imagePullPolicy: Never}}}}`,
				`overrides: {spec: {schedulerName: kai}}`,
			},
			err: `policies conflict: spec.containers[main].imagePullPolicy: policy a wants "Always", policy b wants "Never"; ` +
				`spec.schedulerName: policies a and c want "kai", policy b wants "volcano"`,
		},
		{
			name:     "different defaults, even where the author chose",
			object:   `hostname: h`,
			policies: []string{`defaults: {spec: {hostname: a}}`, `defaults: {spec: {hostname: b}}`},
			err:      `policies conflict: spec.hostname: policy a wants "a", policy b wants "b"`,
		},
		{
			name:     "not of defaults where an override decides",
			object:   `hostname: h`,
			policies: []string{`defaults: {spec: {hostname: a}}`, `defaults: {spec: {hostname: b}}`, `overrides: {spec: {hostname: c}}`},
			want:     `hostname: c`,
			warnings: []string{`policy c replaced spec.hostname: "h" is now "c"`},
		},
		{
			name:     "one policy with itself",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {tty: true}, "0": {tty: false}}}}`},
			err:      `policies conflict: spec.containers[main].tty: policy a wants false, policy a wants true`,
		},
		{
			name:     "atomic lists and unions that differ",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {args: [a], env: [{name: X, value: a}]}}}}`, `overrides: {spec: {containers: {"*": {args: [a, b], env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}}}`},
			err: `policies conflict: spec.containers[main].args: policy a wants ["a"], policy b wants ["a","b"]; ` +
				`spec.containers[main].env[X]: policy a wants {"value":"a"}, policy b wants {"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`,
		},
		{
			name:     "not where what is left out is what the API server fills in",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {livenessProbe: {httpGet: {port: 80}}}}}}`, `overrides: {spec: {containers: {"*": {livenessProbe: {httpGet: {port: 80, path: /}}}}}}`},
			want:     `containers: [{name: main, livenessProbe: {httpGet: {port: 80, path: /}}}]`,
		},
		{
			name:     "a removal and a value",
			object:   `{hostname: h, containers: [{name: main, env: [{name: X}], livenessProbe: {exec: {command: [a]}}}]}`,
			policies: []string{`overrides: {spec: {hostname: null, containers: {"*": {livenessProbe: null}}}}`, `overrides: {spec: {hostname: b, containers: {main: {livenessProbe: {periodSeconds: 5}}}}}`},
			err: `policies conflict: spec.containers[main].livenessProbe: policy a wants it removed, policy b writes in it; ` +
				`spec.hostname: policy a wants it removed, policy b wants "b"`,
		},
		{
			name:     "a removal by path and a value",
			object:   `containers: [{name: main, env: [{name: X, value: x}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: X}]]`, `overrides: {spec: {containers: {"*": {env: [{name: X, value: "1"}]}}}}`},
			err:      `policies conflict: spec.containers[main].env[X]: policy a wants it removed, policy b wants {"name":"X","value":"1"}`,
		},
		{
			name:     "a removal in an atomic list that another writes",
			object:   `{}`,
			policies: []string{`remove: [[spec, tolerations, {operator: Exists}]]`, `overrides: {spec: {tolerations: [{key: a, operator: Exists}]}}`},
			err:      `policies conflict: spec.tolerations[0]: policy a wants it removed, policy b wants {"key":"a","operator":"Exists"}`,
		},
		{
			name:     "a removal of what another appends",
			object:   `tolerations: [{key: a}]`,
			policies: []string{`remove: [[spec, tolerations, {operator: Exists}]]`, `append: [{path: [spec, tolerations], value: {key: b}}, {path: [spec, tolerations], value: {key: c, operator: Exists}}]`, `append: [{path: [spec, tolerations], value: {key: d}}]`},
			err:      `policies conflict: spec.tolerations[2]: policy a wants it removed, policy b wants {"key":"c","operator":"Exists"}`,
		},
		{
			name:     "a removal of what is required of nodes",
			object:   `{}`,
			policies: []string{`remove: [[spec, affinity]]`, `nodes: [{key: a, operator: Exists}]`},
			err:      `policies conflict: spec.affinity: policy a wants it removed, policy b wants {"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecu...`,
		},
		{
			name:     "a removal of a container that another names",
			object:   `containers: [{name: main}, {name: side}]`,
			policies: []string{`remove: [[spec, containers, {name: side}]]`, `defaults: {spec: {containers: {side: {tty: true}}}}`},
			err:      `policies conflict: spec.containers[side]: policy a wants it removed, policy b writes in it`,
		},
		{
			name:     "not of one that another means among all",
			object:   `containers: [{name: main}, {name: side}]`,
			policies: []string{`remove: [[spec, containers, {name: side}]]`, `defaults: {spec: {containers: {"*": {tty: true}}}}`},
			want:     `containers: [{name: main, tty: true}]`,
			warnings: []string{`policy a removed spec.containers[side], which was {"name":"side"}`},
		},
		{
			name:     "not of removals that another's value has no part in",
			object:   `containers: [{name: main, env: [{name: X, value: all}]}]`,
			policies: []string{`remove: [[spec, containers, "*", env, {name: X, value: all}]]`, `overrides: {spec: {containers: {"*": {env: [{name: X, value: "1"}]}}}}`},
			want:     `containers: [{name: main, env: [{name: X, value: "1"}]}]`,
			warnings: []string{`policy a removed spec.containers[main].env[X], which was {"name":"X","value":"all"}`},
		},
		{
			name:   "the first few are said",
			object: `{}`,
			policies: []string{
				`overrides: {spec: {nodeSelector: {a: a, b: a, c: a, d: a, e: a, f: a}}}`,
				`overrides: {spec: {nodeSelector: {a: b, b: b, c: b, d: b, e: b, f: b}}}`,
			},
			err: `policies conflict: spec.nodeSelector[a]: policy a wants "a", policy b wants "b"; spec.nodeSelector[b]: policy a wants "a", policy b wants "b"; ` +
				`spec.nodeSelector[c]: policy a wants "a", policy b wants "b"; spec.nodeSelector[d]: policy a wants "a", policy b wants "b"; and 2 more`,
		},
	})
}
