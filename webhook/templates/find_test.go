// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func places(t *testing.T, group, kind, object string) []string {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(object), &decoded); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, at := range templatesOf(decoded, kinds[schema.GroupKind{Group: group, Kind: kind}]) {
		found = append(found, at.place)
	}
	return found
}

func TestTemplatesAreFoundWhereEachKindHasThem(t *testing.T) {
	tests := []struct {
		group, kind, object string
		want                []string
	}{
		{"batch", "Job", `spec: {template: {spec: {}}}`, []string{"spec.template"}},
		{"batch", "CronJob", `spec: {jobTemplate: {spec: {template: {spec: {}}}}}`, []string{"spec.jobTemplate.spec.template"}},
		{"kubeflow.org", "PyTorchJob", `spec: {pytorchReplicaSpecs: {Worker: {template: {}}, Master: {template: {}}}}`, []string{
			"spec.pytorchReplicaSpecs[Master].template", "spec.pytorchReplicaSpecs[Worker].template",
		}},
		{"ray.io", "RayCluster", `spec: {headGroupSpec: {template: {}}, workerGroupSpecs: [{template: {}}, {template: {}}]}`, []string{
			"spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template", "spec.workerGroupSpecs[1].template",
		}},
		{"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {leaderWorkerTemplate: {workerTemplate: {}}}`, []string{"spec.leaderWorkerTemplate.workerTemplate"}},
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

func TestOnlyWhatChangedIsJudged(t *testing.T) {
	of := func(image string) []template {
		return []template{{"spec.template", map[string]any{"spec": map[string]any{"image": image}}}}
	}
	if left := changed(of("a"), of("a")); len(left) != 0 {
		t.Errorf("unchanged, and judged: %v", left)
	}
	if left := changed(of("b"), of("a")); len(left) != 1 {
		t.Error("changed, and not judged")
	}
	if left := changed(of("a"), nil); len(left) != 1 {
		t.Error("new, and not judged")
	}
}
