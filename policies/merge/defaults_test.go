// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

func TestDefaultsFillWhatIsOpen(t *testing.T) {
	check(t, []example{
		{
			name:     "what is absent",
			object:   `containers: [{name: main}]`,
			policies: []string{`defaults: {spec: {schedulerName: kai, securityContext: {runAsUser: 1000}, nodeSelector: {pool: a}}}`},
			want:     `{containers: [{name: main}], schedulerName: kai, securityContext: {runAsUser: 1000}, nodeSelector: {pool: a}}`,
			changes:  map[string][]string{"a": {"spec.nodeSelector[pool]", "spec.schedulerName", "spec.securityContext.runAsUser"}},
		},
		{
			name:     "not what the author said",
			object:   `{schedulerName: mine, securityContext: {runAsUser: 0}, nodeSelector: {pool: b, zone: z}}`,
			policies: []string{`defaults: {spec: {schedulerName: kai, securityContext: {runAsUser: 1000, runAsGroup: 7}, nodeSelector: {pool: a}}}`},
			want:     `{schedulerName: mine, securityContext: {runAsUser: 0, runAsGroup: 7}, nodeSelector: {pool: b, zone: z}}`,
			changes:  map[string][]string{"a": {"spec.securityContext.runAsGroup"}},
		},
		{
			// A plain merge keeps these, since they are there.
			name: "what the API server filled in",
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
			name:     "not the same value where the API server fills in another",
			object:   `containers: [{name: main, image: main, imagePullPolicy: IfNotPresent}, {name: side, image: "side:v1", imagePullPolicy: IfNotPresent}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {imagePullPolicy: Never}}}}`},
			want:     `containers: [{name: main, image: main, imagePullPolicy: IfNotPresent}, {name: side, image: "side:v1", imagePullPolicy: Never}]`,
		},
		{
			name: "a list of standard tolerations, which are kept",
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
			name: "not an atomic list to which the author added",
			object: `
tolerations:
- {key: mine, operator: Exists}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`,
			policies: []string{`defaults: {spec: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}}`},
		},
		{
			name:     "not a command, nor what is replaced whole",
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
			name:     "a volume without source",
			object:   `volumes: [{name: shm, emptyDir: {}}, {name: mine, emptyDir: {sizeLimit: 1Gi}}]`,
			policies: []string{`defaults: {spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: mine, emptyDir: {medium: Memory}}]}}`},
			want:     `volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: mine, emptyDir: {sizeLimit: 1Gi}}]`,
		},
		{
			// Else it would be open the next time. The author is told.
			name:     "what opens by another default",
			object:   `containers: [{name: main, resources: {requests: {cpu: "1"}}}]`,
			policies: []string{`defaults: {spec: {containers: {main: {resources: {limits: {cpu: 1000m}}}}}}`, `defaults: {spec: {containers: {main: {resources: {requests: {cpu: 500m}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {cpu: 1000m}, requests: {cpu: 500m}}}]`,
			warnings: []string{`policy b replaced spec.containers[main].resources.requests[cpu]: "1" is now "500m"`},
		},
		{
			name:     "null is an error",
			object:   `{}`,
			policies: []string{`defaults: {spec: {schedulerName: null, containers: {"*": null}}}`},
			err: "policy a: spec.containers[*]: is null: use remove to take out a container\n" +
				"policy a: spec.schedulerName: is null, which removes in overrides only; leave it out of defaults",
		},
	})
}
