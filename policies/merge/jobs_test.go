// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/merge/schema"
)

// batchJob is a Job of one container, as webhooks see it.
const batchJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  backoffLimit: 6
  podReplacementPolicy: TerminatingOrFailed
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: x}]}`

// Jobs are merged by their own schema, and their template like a pod.
func TestJobsAreMerged(t *testing.T) {
	tests := map[string]struct {
		changes, want, warning, err string
	}{
		"defaults fill open fields": {
			changes: `defaults: {spec: {backoffLimit: 3, podReplacementPolicy: Failed, podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}}}`,
			want: `{backoffLimit: 3, podReplacementPolicy: Failed, podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]},
				template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}}`,
		},
		"defaults keep the author's fields": {
			changes: `defaults: {spec: {template: {spec: {restartPolicy: OnFailure, containers: {"*": {image: other, tty: true}}}}}}`,
			want:    `{backoffLimit: 6, podReplacementPolicy: TerminatingOrFailed, template: {spec: {restartPolicy: Never, containers: [{name: main, image: x, tty: true}]}}}`,
		},
		"an override warns": {
			changes: `overrides: {spec: {template: {spec: {restartPolicy: OnFailure}}}}`,
			want:    `{backoffLimit: 6, podReplacementPolicy: TerminatingOrFailed, template: {spec: {restartPolicy: OnFailure, containers: [{name: main, image: x}]}}}`,
			warning: `policy a replaced spec.template.spec.restartPolicy: "Never" is now "OnFailure"`,
		},
		"nodes, append and remove": {
			changes: `{nodes: [{key: pool, operator: Exists}], append: [{path: [spec, template, spec, tolerations], value: {key: gpu, operator: Exists}}], remove: [[spec, backoffLimit]]}`,
			want: `{backoffLimit: 6, podReplacementPolicy: TerminatingOrFailed, template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}],
				tolerations: [{key: gpu, operator: Exists}],
				affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Exists}]}]}}}}}}`,
		},
		"identity": {
			changes: `overrides: {metadata: {name: b, ownerReferences: []}, status: {}}`,
			err: `policy a: metadata.name: cannot be written by any policy
policy a: metadata.ownerReferences: cannot be written by any policy
policy a: status: cannot be written by any policy`,
		},
		"fields of pods only": {
			changes: `{overrides: {spec: {schedulerName: b}}, remove: [[spec, tolerations, "*"]]}`,
			err: `policy a: remove ["spec","tolerations","*"]: a Job has no field tolerations there
policy a: spec.schedulerName: a Job has no such field`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := decodeYAML[changesYAML](t, tc.changes)
			policy.Policy = "a"
			desired := []DesiredChanges{policy.toChanges()}
			result, err := Apply(decodeYAML[map[string]any](t, batchJob), desired, schema.ClusterDefaults{})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("err = %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decodeYAML[map[string]any](t, tc.want), result.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			var warnings []string
			for _, w := range result.Warnings {
				warnings = append(warnings, w.String())
			}
			if got := strings.Join(warnings, "\n"); got != tc.warning {
				t.Errorf("warnings are %q, want %q", got, tc.warning)
			}
			again, err := Apply(result.Object, desired, schema.ClusterDefaults{})
			if err != nil || len(again.ChangedPaths) > 0 {
				t.Errorf("a second time: %v, %v", again.ChangedPaths, err)
			}
		})
	}
}
