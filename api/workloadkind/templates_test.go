// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workloadkind"
)

func templatePaths(t *testing.T, group, kind, object string) []string {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(object), &decoded); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, at := range workloadkind.Templates(schema.GroupKind{Group: group, Kind: kind}, decoded) {
		found = append(found, at.Path)
	}
	return found
}

func TestTemplatesOfEveryKind(t *testing.T) {
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
		if diff := cmp.Diff(tc.want, templatePaths(t, tc.group, tc.kind, tc.object)); diff != "" {
			t.Errorf("%s %s:\n%s", tc.kind, tc.object, diff)
		}
	}
}

// An object that is all templates is not looked through for ever.
func TestTemplatesAreLimited(t *testing.T) {
	object := `spec: {podSets: [` + strings.Repeat(`{template: {}},`, 1000) + `]}`
	if found := templatePaths(t, "kueue.x-k8s.io", "Workload", object); len(found) != 64 {
		t.Errorf("%d templates", len(found))
	}
}

func decodeObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// For every kind, a replaced template is the one that is found afterwards.
func TestWithTemplatesReplacesEveryTemplate(t *testing.T) {
	for kind, text := range map[schema.GroupKind]string{
		{Group: "batch", Kind: "Job"}:                                `{spec: {template: {spec: {a: 1}}, suspend: true}}`,
		{Group: "batch", Kind: "CronJob"}:                            `{spec: {jobTemplate: {spec: {template: {}}}}}`,
		{Group: "jobset.x-k8s.io", Kind: "JobSet"}:                   `{spec: {replicatedJobs: [{name: a, template: {spec: {template: {}}}}, 7, {name: b, template: {spec: {template: {}}}}, {}]}}`,
		{Group: "kubeflow.org", Kind: "PyTorchJob"}:                  `{spec: {pytorchReplicaSpecs: {Master: {template: {}}, "a.b[0]": {template: {}}, None: null}}}`,
		{Group: "ray.io", Kind: "RayJob"}:                            `{spec: {rayClusterSpec: {headGroupSpec: {template: {}}, workerGroupSpecs: [{template: {}}]}, submitterPodTemplate: {}}}`,
		{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: `{spec: {leaderWorkerTemplate: {leaderTemplate: null, workerTemplate: {}}}}`,
		{Group: "", Kind: "Pod"}:                                     `{metadata: {name: a}, spec: {}}`,
		{Group: "example.org", Kind: "Unknown"}:                      `{spec: {template: {}}}`,
		{Group: "kubeflow.org", Kind: "TFJob"}:                       `{spec: 7}`,
		{Group: "ray.io", Kind: "RayCluster"}:                        `{}`,
	} {
		before := decodeObject(t, text)
		bodies := map[string]map[string]any{"elsewhere": {}}
		for _, found := range workloadkind.Templates(kind, before) {
			bodies[found.Path] = map[string]any{"at": found.Path}
		}
		after := workloadkind.WithTemplates(kind, before, bodies)
		if diff := cmp.Diff(decodeObject(t, text), before); diff != "" {
			t.Errorf("%s: the object itself was changed:\n%s", kind, diff)
		}
		found := workloadkind.Templates(kind, after)
		if len(found) != len(bodies)-1 {
			t.Errorf("%s: %d templates, want %d", kind, len(found), len(bodies)-1)
		}
		for _, template := range found {
			if template.Body["at"] != template.Path {
				t.Errorf("%s: at %s is %v", kind, template.Path, template.Body)
			}
			delete(bodies, template.Path)
		}
		if diff := cmp.Diff(before, workloadkind.WithTemplates(kind, before, nil)); diff != "" {
			t.Errorf("%s with no other templates:\n%s", kind, diff)
		}
	}
}

func TestControllerOf(t *testing.T) {
	for text, want := range map[string]schema.GroupKind{
		`{metadata: {ownerReferences: [{apiVersion: v1, kind: Pod}, {apiVersion: apps/v1, kind: ReplicaSet, controller: true}]}}`: {Group: "apps", Kind: "ReplicaSet"},
		`{metadata: {ownerReferences: [{apiVersion: v1, kind: ReplicationController, controller: true}]}}`:                        {Kind: "ReplicationController"},
		`{metadata: {ownerReferences: [7, {controller: "yes"}, {kind: Pod}]}}`:                                                    {},
		`{metadata: {ownerReferences: {}}}`: {},
		`{metadata: []}`:                    {},
	} {
		got, found := workloadkind.ControllerOf(decodeObject(t, text))
		if got != want || found != (want != schema.GroupKind{}) {
			t.Errorf("%s: %v %v, want %v", text, got, found, want)
		}
	}
}
