// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine/document"
)

// The request that is parsed from the relevant fields equals the request of the whole pod.
func TestWorkloadRequestMatchesFullParse(t *testing.T) {
	files, err := filepath.Glob("../../test/testdata/pods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pods, %v", len(files), err)
	}
	pods := map[string]string{
		"a variable that limits": `{"metadata": {"annotations": {"gpu-memory": "1000"}}, "spec": {"containers": [
			{"name": "main", "image": "x", "env": [{"name": "A", "value": "1"}, {"name": "RUNAI_GPU_MEMORY_LIMIT", "value": "2Gi"}]}]}}`,
		"a variable with a source": `{"spec": {"containers": [{"name": "main", "env": [
			{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B"}, {"name": "C", "value": null}]}]}}`,
		"no variables": `{"spec": {"containers": [{"name": "main", "env": null}, {"name": "b", "env": []}]}}`,
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		pods[filepath.Base(file)] = string(raw)
	}
	for name, raw := range pods {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			if err := json.Unmarshal([]byte(raw), &pod); err != nil {
				t.Fatal(err)
			}
			want, wantErr := workload.ParsePod(&pod)
			object, err := document.Decode([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			got, gotErr := (&Request{Tenant: &Tenant{}}).workloadRequest(object.Object())
			if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
				t.Errorf("errors %v and %v (-whole +relevant):\n%s", wantErr, gotErr, diff)
			}
		})
	}
}

func TestWorkloadRequestRejectsInvalidPods(t *testing.T) {
	for _, raw := range []string{
		`{"metadata": 7}`, `{"metadata": {"labels": 7}}`, `{"spec": []}`, `{"spec": {"containers": {}}}`, `{"spec": {"containers": [7]}}`,
		`{"spec": {"containers": [{"env": 7}]}}`, `{"spec": {"containers": [{"env": [7]}]}}`, `{"spec": {"containers": [{"env": [{"name": 7}]}]}}`,
		`{"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}`, `{"spec": {"initContainers": [{"env": {}}]}}`,
	} {
		object, err := document.Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (&Request{Tenant: &Tenant{}}).workloadRequest(object.Object()); err == nil {
			t.Errorf("%s is parsed as %+v", raw, got)
		}
	}
}

// A replayed decision knows the resources that the cluster's objects listed then.
func TestSnapshotKeepsListedResources(t *testing.T) {
	pools := []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}}}
	pools[0].Spec.Resources = []v1alpha1.GPUResource{{Name: "nvidia.com/half", GPUs: resource.MustParse("500m")}}
	pools[0].Status.UnlistedResources = []v1alpha1.UnlistedResource{{Name: "nvidia.com/a100"}}
	tenant, err := NewTenant(TenantSources{
		Project:    &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "lab"}},
		Department: &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "research"}}, NodePools: pools,
		NonGPUResources: []v1alpha1.ResourcePattern{"rdma/*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := tenant.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var read Snapshot
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	again, err := read.Tenant()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tenant.Units, again.Units); diff != "" || !strings.Contains(string(raw), `"unlistedResources":{"nvidia.com/a100":"dgx"}`) {
		t.Errorf("%s (-want +got):\n%s", raw, diff)
	}
}
