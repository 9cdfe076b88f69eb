// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workload/kinds"
)

func places(t *testing.T, group, kind, object string) []string {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(object), &decoded); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, at := range kinds.Templates(schema.GroupKind{Group: group, Kind: kind}, decoded) {
		found = append(found, at.Place)
	}
	return found
}

func TestTemplatesAreFoundWhereEachKindHasThem(t *testing.T) {
	tests := []struct {
		group, kind, object string
		want                []string
	}{
		{"batch", "Job", `spec: {template: {spec: {}}}`, []string{"spec.template"}},
		{"", "ReplicationController", `spec: {template: {spec: {}}}`, []string{"spec.template"}},
		{"batch", "CronJob", `spec: {jobTemplate: {spec: {template: {spec: {}}}}}`, []string{"spec.jobTemplate.spec.template"}},
		{"kubeflow.org", "PyTorchJob", `spec: {pytorchReplicaSpecs: {Worker: {template: {}}, Master: {template: {}}}}`, []string{
			"spec.pytorchReplicaSpecs[Master].template", "spec.pytorchReplicaSpecs[Worker].template",
		}},
		{"ray.io", "RayCluster", `spec: {headGroupSpec: {template: {}}, workerGroupSpecs: [{template: {}}, {template: {}}]}`, []string{
			"spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template", "spec.workerGroupSpecs[1].template",
		}},
		{"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {leaderWorkerTemplate: {workerTemplate: {}}}`, []string{"spec.leaderWorkerTemplate.workerTemplate"}},
		{"ray.io", "RayService", `spec: {rayClusterConfig: {headGroupSpec: {template: {}}}}`, []string{"spec.rayClusterConfig.headGroupSpec.template"}},
		{"kueue.x-k8s.io", "Workload", `spec: {podSets: [{template: {}}]}`, []string{"spec.podSets[0].template"}},
		{"", "Pod", `spec: {}`, []string{""}},
		{"batch", "Job", `spec: {template: 7}`, nil},
		{"batch", "Job", `spec: []`, nil},
		{"batch", "Job", `{}`, nil},
		{"example.org", "Unknown", `spec: {template: {}}`, nil},
	}
	for _, tc := range tests {
		if diff := cmp.Diff(tc.want, places(t, tc.group, tc.kind, tc.object)); diff != "" {
			t.Errorf("%s %s:\n%s", tc.kind, tc.object, diff)
		}
	}
}

// An object that is all templates is not looked through for ever.
func TestTemplatesAreBounded(t *testing.T) {
	object := `spec: {podSets: [` + strings.Repeat(`{template: {}},`, 1000) + `]}`
	if found := places(t, "kueue.x-k8s.io", "Workload", object); len(found) != 64 {
		t.Errorf("%d templates", len(found))
	}
}
