// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"
)

func TestDefaultsFillOpenFields(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:     "an absent field",
			object:   `containers: [{name: main}]`,
			policies: []string{`defaults: {spec: {schedulerName: kai, securityContext: {runAsUser: 1000}, nodeSelector: {pool: a}}}`},
			want:     `{containers: [{name: main}], schedulerName: kai, securityContext: {runAsUser: 1000}, nodeSelector: {pool: a}}`,
			changes:  map[string][]string{"a": {"spec.nodeSelector[pool]", "spec.schedulerName", "spec.securityContext.runAsUser"}},
		},
		{
			name:     "not a field of the author's",
			object:   `{schedulerName: mine, securityContext: {runAsUser: 0}, nodeSelector: {pool: b, zone: z}}`,
			policies: []string{`defaults: {spec: {schedulerName: kai, securityContext: {runAsUser: 1000, runAsGroup: 7}, nodeSelector: {pool: a}}}`},
			want:     `{schedulerName: mine, securityContext: {runAsUser: 0, runAsGroup: 7}, nodeSelector: {pool: b, zone: z}}`,
			changes:  map[string][]string{"a": {"spec.securityContext.runAsGroup"}},
		},
		{
			// A plain merge keeps these, since they are set.
			name: "a field that the API server set",
			object: `
restartPolicy: Always
dnsPolicy: ClusterFirst
schedulerName: default-scheduler
terminationGracePeriodSeconds: 30
enableServiceLinks: true
securityContext: {}
serviceAccountName: default
serviceAccount: default
priority: 0
preemptionPolicy: PreemptLowerPriority
containers:
- name: main
  image: example.org/main:v1
  imagePullPolicy: IfNotPresent
  terminationMessagePolicy: File
  resources: {limits: {cpu: "1"}, requests: {cpu: "1"}}
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1}`,
			policies: []string{`
defaults:
  spec:
    restartPolicy: Never
    dnsPolicy: Default
    schedulerName: kai
    terminationGracePeriodSeconds: 60
    enableServiceLinks: false
    serviceAccountName: builder
    priorityClassName: train
    containers:
      "*":
        imagePullPolicy: Always
        terminationMessagePolicy: FallbackToLogsOnError
        resources: {requests: {cpu: 500m}}
        livenessProbe: {periodSeconds: 20, httpGet: {port: 81}}`},
			want: `
restartPolicy: Never
dnsPolicy: Default
schedulerName: kai
terminationGracePeriodSeconds: 60
enableServiceLinks: false
securityContext: {}
serviceAccountName: builder
priorityClassName: train
containers:
- name: main
  image: example.org/main:v1
  imagePullPolicy: Always
  terminationMessagePolicy: FallbackToLogsOnError
  resources: {limits: {cpu: "1"}, requests: {cpu: 500m}}
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, periodSeconds: 20, timeoutSeconds: 1}`,
		},
		{
			name:     "not an equal value where the API server sets another",
			object:   `containers: [{name: main, image: main, imagePullPolicy: IfNotPresent}, {name: side, image: "side:v1", imagePullPolicy: IfNotPresent}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {imagePullPolicy: Never}}}}`},
			want:     `containers: [{name: main, image: main, imagePullPolicy: IfNotPresent}, {name: side, image: "side:v1", imagePullPolicy: Never}]`,
		},
		{
			name: "a list of standard tolerations, which stay",
			object: `
tolerations:
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`,
			policies: []string{`defaults: {spec: {tolerations: [{key: nvidia.com/gpu, operator: Exists}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}]}}`},
			want: `
tolerations:
- {key: nvidia.com/gpu, operator: Exists}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`,
			changes: map[string][]string{"a": {"spec.tolerations"}},
		},
		{
			name: "not an atomic list with an element of the author's",
			object: `
tolerations:
- {key: mine, operator: Exists}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`,
			policies: []string{`defaults: {spec: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}}`},
		},
		{
			name:     "not a command, nor a part that is replaced as a whole",
			object:   `{containers: [{name: main, command: [sh], args: []}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}`,
			policies: []string{`defaults: {spec: {containers: {main: {command: [bash], args: [-c]}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}}`},
			want:     `{containers: [{name: main, command: [sh], args: [-c]}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}`,
		},
		{
			name:     "a variable's empty value is a value",
			object:   `containers: [{name: main, env: [{name: CUDA_VISIBLE_DEVICES}]}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {env: [{name: CUDA_VISIBLE_DEVICES, value: all}, {name: B, value: b}]}}}}`},
			want:     `containers: [{name: main, env: [{name: CUDA_VISIBLE_DEVICES}, {name: B, value: b}]}]`,
		},
		{
			name:     "a volume without a source",
			object:   `volumes: [{name: shm, emptyDir: {}}, {name: mine, emptyDir: {sizeLimit: 1Gi}}]`,
			policies: []string{`defaults: {spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: mine, emptyDir: {medium: Memory}}]}}`},
			want:     `volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: mine, emptyDir: {sizeLimit: 1Gi}}]`,
		},
		{
			// Otherwise it would be open the next time. The author gets a warning.
			name:     "a field that another default makes open",
			object:   `containers: [{name: main, resources: {requests: {cpu: "1"}}}]`,
			policies: []string{`defaults: {spec: {containers: {main: {resources: {limits: {cpu: 1000m}}}}}}`, `defaults: {spec: {containers: {main: {resources: {requests: {cpu: 500m}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {cpu: 1000m}, requests: {cpu: 500m}}}]`,
			warnings: []string{`policy b replaced spec.containers[main].resources.requests[cpu]: "1" is now "500m"`},
		},
		{
			name:     "null is an error",
			object:   `{}`,
			policies: []string{`defaults: {spec: {schedulerName: null, containers: {"*": null}}}`},
			err: "policy a: spec.containers[*]: is null: use remove to remove a container\n" +
				"policy a: spec.schedulerName: is null, which removes only in overrides; omit it from defaults",
		},
	})
}

func TestOverridesReplaceAndWarn(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:     "a value of the author's",
			object:   `{schedulerName: mine, nodeSelector: {zone: z}, hostname: h}`,
			policies: []string{`overrides: {spec: {schedulerName: kai, nodeSelector: {pool: a, zone: w}}}`},
			want:     `{schedulerName: kai, nodeSelector: {pool: a, zone: w}, hostname: h}`,
			warnings: []string{
				`policy a replaced spec.nodeSelector[zone]: "z" is now "w"`,
				`policy a replaced spec.schedulerName: "mine" is now "kai"`,
			},
			changes: map[string][]string{"a": {"spec.nodeSelector[pool]", "spec.nodeSelector[zone]", "spec.schedulerName"}},
		},
		{
			name:     "an open field, without a warning",
			object:   `{schedulerName: default-scheduler, priority: 0, terminationGracePeriodSeconds: 30}`,
			policies: []string{`overrides: {spec: {schedulerName: kai, terminationGracePeriodSeconds: 60, priorityClassName: train}}`},
			want:     `{schedulerName: kai, terminationGracePeriodSeconds: 60, priorityClassName: train}`,
			changes:  map[string][]string{"a": {"spec.priority", "spec.priorityClassName", "spec.schedulerName", "spec.terminationGracePeriodSeconds"}},
		},
		{
			name:     "no equal amount",
			object:   `containers: [{name: main, resources: {limits: {cpu: "1", memory: 1024Mi}}}]`,
			policies: []string{`overrides: {spec: {containers: {"0": {resources: {limits: {cpu: 1000m, memory: 1Gi}}}}}}`},
			changes:  map[string][]string{},
		},
		{
			name: "no value that is complete with defaults",
			object: `
containers:
- name: main
  env: [{name: NODE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}]
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}}
volumes: [{name: config, configMap: {name: config, defaultMode: 420}}]`,
			policies: []string{`
overrides:
  spec:
    containers:
      main:
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        livenessProbe: {httpGet: {port: 80}}
    volumes: [{name: config, configMap: {name: config}}]`},
			changes: map[string][]string{},
		},
		{
			name:     "atomic lists as a whole",
			object:   `containers: [{name: main, command: [sh, -c], args: [a, b]}]`,
			policies: []string{`overrides: {spec: {containers: {main: {command: [bash], args: []}}}}`},
			want:     `containers: [{name: main, command: [bash], args: []}]`,
			warnings: []string{
				`policy a replaced spec.containers[main].args: ["a","b"] is now []`,
				`policy a replaced spec.containers[main].command: ["sh","-c"] is now ["bash"]`,
			},
		},
		{
			name:   "tolerations, except for the standard ones",
			object: `tolerations: [{key: mine, operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]`,
			policies: []string{
				`overrides: {spec: {tolerations: [{key: gpu, operator: Exists}]}}`,
				`append: [{path: [spec, tolerations], value: {key: more, operator: Exists}}]`,
			},
			want: `tolerations: [{key: gpu, operator: Exists}, {key: more, operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]`,
			warnings: []string{
				`policy a replaced spec.tolerations: [{"key":"mine","operator":"Exists"},{"effect":"NoExecute","k... is now [{"key":"gpu","operator":"Exists"},{"key":"more","operator":...`,
			},
		},
		{
			name:     "null removes",
			object:   `{hostNetwork: true, affinity: {podAffinity: {}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}, nodeSelector: {a: b}, containers: [{name: main, resources: {limits: {cpu: "1"}}}]}`,
			policies: []string{`overrides: {spec: {hostNetwork: null, affinity: null, hostname: null, nodeSelector: {a: null}, containers: {"*": {resources: {limits: null}}}}}`},
			want:     `{nodeSelector: {}, containers: [{name: main, resources: {}}]}`,
			warnings: []string{
				`policy a removed spec.affinity, which was {"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExec...`,
				`policy a removed spec.containers[main].resources.limits, which was {"cpu":"1"}`,
				`policy a removed spec.hostNetwork, which was true`,
				`policy a removed spec.nodeSelector[a], which was "b"`,
			},
		},
		{
			name:     "null removes nothing that the API server would set again",
			object:   `{schedulerName: default-scheduler, securityContext: {}, containers: [{name: main, image: main, imagePullPolicy: Always, resources: {limits: {cpu: "1"}, requests: {cpu: "1"}}}], tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}`,
			policies: []string{`overrides: {spec: {schedulerName: null, securityContext: null, tolerations: null, containers: {main: {imagePullPolicy: null, resources: {requests: {cpu: null}}}}}}`},
			changes:  map[string][]string{},
		},
		{
			name:     "they win over defaults",
			object:   `{hostname: h}`,
			policies: []string{`defaults: {spec: {schedulerName: a, hostname: a, subdomain: s, affinity: {podAffinity: {}}, nodeSelector: {a: a}}}`, `overrides: {spec: {schedulerName: b, subdomain: null, nodeSelector: null}}`},
			want:     `{schedulerName: b, hostname: h}`,
			changes:  map[string][]string{"b": {"spec.schedulerName"}},
		},
		{
			name:     "labels and annotations",
			object:   `metadata: {name: x, labels: {a: b}, annotations: {note: m}}`,
			policies: []string{`overrides: {metadata: {labels: {a: c, sluice.dev/queue: q}, annotations: {note: null}}}`},
			want:     `metadata: {name: x, labels: {a: c, sluice.dev/queue: q}, annotations: {}}`,
			warnings: []string{
				`policy a removed metadata.annotations[note], which was "m"`,
				`policy a replaced metadata.labels[a]: "b" is now "c"`,
			},
		},
		{
			name:     "two policies that agree",
			object:   `{hostname: h, containers: [{name: main, resources: {limits: {cpu: "4"}}}]}`,
			policies: []string{`overrides: {spec: {hostname: g, containers: {"*": {resources: {limits: {cpu: 1000m}}}}}}`, `overrides: {spec: {hostname: g, containers: {"0": {resources: {limits: {cpu: 1}}}}}}`},
			want:     `{hostname: g, containers: [{name: main, resources: {limits: {cpu: "1000m"}}}]}`,
			warnings: []string{
				`policies a and b replaced spec.containers[main].resources.limits[cpu]: "4" is now "1000m"`,
				`policies a and b replaced spec.hostname: "h" is now "g"`,
			},
			changes: map[string][]string{
				"a": {"spec.containers[main].resources.limits[cpu]", "spec.hostname"},
				"b": {"spec.containers[main].resources.limits[cpu]", "spec.hostname"},
			},
		},
	})
}

func TestUnionsAreReplacedWhole(t *testing.T) {
	runCases(t, []mergeCase{
		{
			name:     "value and valueFrom",
			object:   `containers: [{name: main, env: [{name: A, value: a}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]`,
			policies: []string{`overrides: {spec: {containers: {main: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: b}]}}}}`},
			want:     `containers: [{name: main, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: b}]}]`,
			warnings: []string{
				`policy a replaced spec.containers[main].env[A]: {"value":"a"} is now {"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`,
				`policy a replaced spec.containers[main].env[B]: {"valueFrom":{"secretKeyRef":{"key":"k","name":"s"}}} is now {"value":"b"}`,
			},
		},
		{
			name:     "a volume's source with its fields",
			object:   `volumes: [{name: a, emptyDir: {medium: Memory}}, {name: b, hostPath: {path: /b, type: Directory}}]`,
			policies: []string{`overrides: {spec: {volumes: [{name: a, emptyDir: {sizeLimit: 1Gi}}, {name: b, emptyDir: {}}]}}`},
			want:     `volumes: [{name: a, emptyDir: {sizeLimit: 1Gi}}, {name: b, emptyDir: {}}]`,
			warnings: []string{
				`policy a replaced spec.volumes[a].emptyDir: {"medium":"Memory"} is now {"sizeLimit":"1Gi"}`,
				`policy a replaced spec.volumes[b]: {"hostPath":{"path":"/b","type":"Directory"}} is now {"emptyDir":{}}`,
			},
		},
		{
			name:     "handlers of probes and of the life cycle",
			object:   `containers: [{name: main, livenessProbe: {exec: {command: [a]}, periodSeconds: 7}, lifecycle: {preStop: {sleep: {seconds: 1}}, postStart: {exec: {command: [b]}}}}]`,
			policies: []string{`overrides: {spec: {containers: {main: {livenessProbe: {tcpSocket: {port: 80}}, lifecycle: {preStop: {exec: {command: [c]}}}}}}}`},
			want:     `containers: [{name: main, livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 7}, lifecycle: {preStop: {exec: {command: [c]}}, postStart: {exec: {command: [b]}}}}]`,
			warnings: []string{
				`policy a replaced spec.containers[main].lifecycle.preStop: {"sleep":{"seconds":1}} is now {"exec":{"command":["c"]}}`,
				`policy a replaced spec.containers[main].livenessProbe: {"exec":{"command":["a"]}} is now {"tcpSocket":{"port":80}}`,
			},
		},
		{
			name:     "a seccomp profile's type and file",
			object:   `securityContext: {seccompProfile: {type: Localhost, localhostProfile: mine.json}, runAsUser: 1}`,
			policies: []string{`overrides: {spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}}}`},
			want:     `securityContext: {seccompProfile: {type: RuntimeDefault}, runAsUser: 1}`,
			warnings: []string{
				`policy a replaced spec.securityContext.seccompProfile: {"localhostProfile":"mine.json","type":"Localhost"} is now {"type":"RuntimeDefault"}`,
			},
		},
		{
			name:     "defaults keep any member that is set",
			object:   `{containers: [{name: main, env: [{name: A, value: a}], livenessProbe: {exec: {command: [a]}}}], volumes: [{name: v, hostPath: {path: /v}}]}`,
			policies: []string{`defaults: {spec: {containers: {main: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], livenessProbe: {httpGet: {port: 80}, periodSeconds: 5}}}, volumes: [{name: v, emptyDir: {}}]}}`},
			want:     `{containers: [{name: main, env: [{name: A, value: a}], livenessProbe: {exec: {command: [a]}, periodSeconds: 5}}], volumes: [{name: v, hostPath: {path: /v}}]}`,
		},
		{
			name:     "null removes the member that it names",
			object:   `containers: [{name: main, env: [{name: A, value: a}, {name: B, value: b}]}]`,
			policies: []string{`overrides: {spec: {containers: {main: {env: [{name: A, value: null}, {name: B, valueFrom: null}]}}}}`, `overrides: {spec: {containers: {main: {env: [{name: B, value: c, valueFrom: null}]}}}}`},
			want:     `containers: [{name: main, env: [{name: A}, {name: B, value: c}]}]`,
			warnings: []string{
				`policy a removed spec.containers[main].env[A].value, which was "a"`,
				`policies a and b replaced spec.containers[main].env[B].value: "b" is now "c"`,
			},
		},
		{
			name:     "two members are an error",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {main: {env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}}}`},
			err:      `policy a: spec.containers[main].env[A]: has value and valueFrom, of which a pod can have only one`,
		},
	})
}
