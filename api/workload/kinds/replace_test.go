// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workload/kinds"
)

func plain(t *testing.T, text string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// What stands in the place of a template is found there again, whatever the kind.
func TestTemplatesAreReplacedWhereTheyAreFound(t *testing.T) {
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
		before := plain(t, text)
		bodies := map[string]map[string]any{"elsewhere": {}}
		for _, found := range kinds.Templates(kind, before) {
			bodies[found.Place] = map[string]any{"at": found.Place}
		}
		after := kinds.WithTemplates(kind, before, bodies)
		if diff := cmp.Diff(plain(t, text), before); diff != "" {
			t.Errorf("%s: the object itself was changed:\n%s", kind, diff)
		}
		found := kinds.Templates(kind, after)
		if len(found) != len(bodies)-1 {
			t.Errorf("%s: %d templates, want %d", kind, len(found), len(bodies)-1)
		}
		for _, template := range found {
			if template.Body["at"] != template.Place {
				t.Errorf("%s: at %s is %v", kind, template.Place, template.Body)
			}
			delete(bodies, template.Place)
		}
		if diff := cmp.Diff(before, kinds.WithTemplates(kind, before, nil)); diff != "" {
			t.Errorf("%s with no other templates:\n%s", kind, diff)
		}
	}
}

func TestController(t *testing.T) {
	for text, want := range map[string]schema.GroupKind{
		`{metadata: {ownerReferences: [{apiVersion: v1, kind: Pod}, {apiVersion: apps/v1, kind: ReplicaSet, controller: true}]}}`: {Group: "apps", Kind: "ReplicaSet"},
		`{metadata: {ownerReferences: [{apiVersion: v1, kind: ReplicationController, controller: true}]}}`:                        {Kind: "ReplicationController"},
		`{metadata: {ownerReferences: [7, {controller: "yes"}, {kind: Pod}]}}`:                                                    {},
		`{metadata: {ownerReferences: {}}}`: {},
		`{metadata: []}`:                    {},
	} {
		got, found := kinds.Controller(plain(t, text))
		if got != want || found != (want != schema.GroupKind{}) {
			t.Errorf("%s: %v %v, want %v", text, got, found, want)
		}
	}
}
