// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// What policies read as input.workload.
func TestRequestJSON(t *testing.T) {
	for name, p := range map[string]podTemplateBuilder{
		"nothing": newPod(),
		"training": newPod().withLimit("nvidia.com/gpu", "2").withLimit("rdma/hca", "1").withController("kubeflow.org/v1", "PyTorchJob").
			withLabel("sluice.dev/workload-type", "train").withAnnotation("sluice.dev/node-pools", "dgx-h100,dgx-a100").withAnnotation("sluice.dev/max-runtime", "1d12h"),
		"notebook": newPod().withAnnotation("gpu-fraction", "0.25").withAnnotation("gpu-fraction-num-devices", "2").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.95").
			withChange(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].TTY = true }),
		"memory": newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "16384"),
		"slices": newPod().withLimit("nvidia.com/mig-1g.10gb.me", "2"),
		"claims": newPod().withLimit("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "2").withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("one-h100")}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			request, err := workload.Parse(p.PodTemplateSpec)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(request, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden.Assert(t, string(got), name+".json")
			var back workload.Request
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(request, back); diff != "" {
				t.Errorf("through JSON and back: -before +after\n%s", diff)
			}
		})
	}
}

// An undefined value in a deny rule would be consent, so nothing is left out.
func TestRequestJSONHasEveryField(t *testing.T) {
	request, err := workload.Parse(newPod().PodTemplateSpec)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	if fields := reflect.TypeFor[workload.Request]().NumField(); len(object) != fields {
		t.Errorf("%d of %d fields: %s", len(object), fields, raw)
	}
	for key, value := range object {
		if value == nil {
			t.Errorf("%s is null", key)
		}
	}
}

func TestMilliDescribe(t *testing.T) {
	for milli, want := range map[workload.Milli]string{
		0: "no GPUs", 1: "0.001 of a GPU", 500: "0.5 of a GPU", 1000: "1 GPU", 1500: "1.5 GPUs", 2000: "2 GPUs",
	} {
		if got := milli.Describe(); got != want {
			t.Errorf("%d in words = %q, want %q", milli, got, want)
		}
	}
}
