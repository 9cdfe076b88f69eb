// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// kaiPool is a pool with a shard of its own.
func kaiPool(p input.NodePool, name string, sharing v1alpha1.Sharing) input.NodePool {
	p.Name, p.Scheduler, p.Sharing, p.QuotaResource = name, v1alpha1.SchedulerKAI, sharing, v1alpha1.ResourceGPUMilli
	p.GuaranteedResource, p.NodeSelector = v1alpha1.ResourceGuaranteedMilli, map[string]string{"kai.scheduler/node-pool": name}
	return p
}

var (
	kaiSharedPool = kaiPool(wholeGPUPool, "shared", v1alpha1.SharingKAI)
	kaiSparePool  = kaiPool(wholeGPUPool, "spare", v1alpha1.SharingKAI)
	kaiMIGPool    = kaiPool(migPool, "slices", v1alpha1.SharingMIG)
)

// kaiBurstPool lets pods exceed their share, up to limits of the driver.
func kaiBurstPool() input.NodePool {
	p := kaiSharedPool
	p.Burst, p.DriverLimits = v1alpha1.BurstAllow, true
	return p
}

const kaiSharedPod = `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: main}]}}`

// What KAI-Scheduler reads of a pod is what the policies say of it, whatever the
// pod's author said, and a second look changes nothing.
func TestKAIPods(t *testing.T) {
	set := compileBuiltIn(t)
	for name, example := range map[string]struct {
		pod   string
		pools []input.NodePool
		want  map[string]string
	}{
		"a share, in one of two pools": {
			kaiSharedPod,
			[]input.NodePool{kaiSharedPool, kaiSparePool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-fraction": "0.5", "sluice.dev/node-pools": "shared,spare", "sluice.dev/gpu-milli": "500",
			},
		},
		"a share by our annotation, interactive, with another scheduler, class and preemptibility": {
			`{metadata: {labels: {sluice.dev/workload-type: interactive, kai.scheduler/preemptibility: preemptible, priorityClassName: build}, annotations: {sluice.dev/gpu: 250m}}, spec: {schedulerName: mine, containers: [{name: main}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-interactive",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "non-preemptible",
				"gpu-fraction": "0.25", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "250", "sluice.dev/guaranteed-milli": "250",
			},
		},
		"a train pod that would rather stay": {
			`{metadata: {labels: {kai.scheduler/preemptibility: non-preemptible}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "1k", "nvidia.com/gpu": "1",
			},
		},
		"a share that becomes a slice, and is one alone": {
			`{metadata: {annotations: {gpu-fraction: "0.3"}}, spec: {containers: [{name: main}]}}`,
			[]input.NodePool{kaiMIGPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.slices", "kai.scheduler/node-pool": "slices", "kai.scheduler/preemptibility": "preemptible",
				"sluice.dev/node-pools": "slices", "sluice.dev/gpu-milli": "500", "nvidia.com/mig-3g.20gb": "1",
			},
		},
		"a share that KAI cannot count": {
			`{metadata: {annotations: {sluice.dev/gpu: 125m, gpu-fraction-num-devices: "2"}}, spec: {containers: [{name: main}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-fraction": "0.13", "gpu-fraction-num-devices": "2", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "260",
			},
		},
		"the same in KAI's annotation": {
			`{metadata: {annotations: {gpu-fraction: "0.004"}}, spec: {containers: [{name: main}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-fraction": "0.01", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "10",
			},
		},
		"a share that KAI counts as a whole GPU": {
			`{metadata: {annotations: {sluice.dev/gpu: 999m}}, spec: {containers: [{name: main}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"nvidia.com/gpu": "1", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "1k",
			},
		},
		"as KAI's own webhook leaves it": {
			`{metadata: {annotations: {gpu-memory: "8000", runai/shared-gpu-configmap: p-abcdefg-shared-gpu}}, spec: {containers: [{name: main, env: [{name: NVIDIA_VISIBLE_DEVICES, valueFrom: {configMapKeyRef: {name: p-abcdefg-shared-gpu-0, key: NVIDIA_VISIBLE_DEVICES}}}], envFrom: [{configMapRef: {name: p-abcdefg-shared-gpu-0-evar, optional: false}}]}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-memory": "8000", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "100",
				"NVIDIA_VISIBLE_DEVICES": "p-abcdefg-shared-gpu-0",
			},
		},
		"with the limits of KAI's plugin hamicore": {
			`{metadata: {annotations: {gpu-memory: "8000", runai/shared-gpu-configmap: p-abcdefg-shared-gpu}}, spec: {containers: [{name: main, env: [{name: CUDA_DEVICE_MEMORY_LIMIT, valueFrom: {configMapKeyRef: {name: p-abcdefg-shared-gpu-0, key: CUDA_DEVICE_MEMORY_LIMIT, optional: true}}}]}]}}`,
			[]input.NodePool{kaiSharedPool},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-memory": "8000", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "100",
				"CUDA_DEVICE_MEMORY_LIMIT": "p-abcdefg-shared-gpu-0",
			},
		},
		"a share that may burst, with the limits of the driver": {
			`{metadata: {annotations: {gpu-memory: "8000", sluice.dev/gpu-memory-limit: "16000"}}, spec: {containers: [{name: main}]}}`,
			[]input.NodePool{kaiBurstPool()},
			map[string]string{
				"scheduler": "kai-scheduler", "class": "sluice-train",
				"kai.scheduler/queue": "thesis.shared", "kai.scheduler/node-pool": "shared", "kai.scheduler/preemptibility": "preemptible",
				"gpu-memory": "8000", "gpu-memory.limit": "16000Mi", "sluice.dev/node-pools": "shared", "sluice.dev/gpu-milli": "100",
				"NVIDIA_GPU_MEMORY_REQUEST": "8000", "NVIDIA_GPU_MEMORY_LIMIT": "16000",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			admitted := admitPod(t, set, testProject, example.pools, decodeYAML(t, example.pod))
			if refused := admitted.rejection(); refused != "" {
				t.Fatal(refused)
			}
			if diff := cmp.Diff(example.want, kaiFields(toPod(t, admitted.pod))); diff != "" {
				t.Errorf("what KAI reads (-want +got):\n%s", diff)
			}
			again := admitPod(t, set, testProject, example.pools, admitted.pod)
			if refused := again.rejection(); refused != "" || again.patch != "[]" && again.patch != "" && again.patch != "null" {
				t.Errorf("a second look: %s %s", refused, again.patch)
			}
		})
	}
}

// kaiFields is what of a pod decides where and how KAI-Scheduler runs it.
func kaiFields(pod *corev1.Pod) map[string]string {
	read := map[string]string{"scheduler": pod.Spec.SchedulerName, "class": pod.Spec.PriorityClassName}
	for key, value := range pod.Labels {
		if strings.HasPrefix(key, "kai.scheduler/") || key == "priorityClassName" {
			read[key] = value
		}
	}
	for _, key := range []string{"gpu-fraction", "gpu-memory", "gpu-memory.limit", "gpu-fraction-num-devices", "gpu-fraction-container-name", "sluice.dev/node-pools", "pod-group-name", "mps"} {
		if value, ok := pod.Annotations[key]; ok {
			read[key] = value
		}
	}
	for name, amount := range pod.Spec.Containers[0].Resources.Limits {
		read[string(name)] = amount.String()
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		read[variable.Name] = variable.Value
		if variable.ValueFrom != nil {
			read[variable.Name] = variable.ValueFrom.ConfigMapKeyRef.Name
		}
	}
	return read
}

// The names of queues are known in Go too, where groups are put into them.
func TestKAIQueueNamesMatchGo(t *testing.T) {
	project := map[string]any{"apiVersion": "sluice.dev/v1alpha1", "kind": "Project", "metadata": map[string]any{"name": "thesis"}}
	pools := []input.NodePool{kaiSharedPool, kaiMIGPool, wholeGPUPool}
	rendering, err := compileBuiltIn(t).RenderObjects(t.Context(), engine.Input{
		Object: newDocument(t, project), Project: newDocument(t, testProject), NodePools: newDocument(t, pools),
		Department: newDocument(t, input.Department{Name: "students"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range rendering.Failures {
		t.Errorf("%s: %v", failure.Policy, failure.Err)
	}
	var got, want []string
	for _, object := range rendering.Objects {
		if object.Value["kind"] == "Queue" {
			queue := unstructured.Unstructured{Object: object.Value}
			got = append(got, queue.GetName()+" "+queue.GetLabels()["kai.scheduler/node-pool"])
		}
	}
	for _, place := range kaigroup.Placements("thesis", pools) {
		want = append(want, place.Queue+" "+place.Shard)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 2 {
		t.Errorf("queues (-Go +Rego):\n%s", diff)
	}
}

// The ways round that begin with a pod.
func TestKAIPodsCannotBypassPolicies(t *testing.T) {
	set := compileBuiltIn(t)
	for name, example := range map[string]struct{ pod, says string }{
		"another project's queue": {
			`{metadata: {labels: {kai.scheduler/queue: other.shared}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			"queue other.shared does not belong to project thesis",
		},
		"no group": {
			`{metadata: {annotations: {kai.scheduler/skip-podgrouper: "true"}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			"only KAI-Scheduler writes the annotation kai.scheduler/skip-podgrouper",
		},
		"another's group": {
			`{metadata: {annotations: {pod-group-name: theirs}}, spec: {containers: [{name: main}]}}`,
			"only KAI-Scheduler writes the annotation pod-group-name",
		},
		"more memory than a GPU has": {
			`{metadata: {annotations: {gpu-memory: "90000"}}, spec: {containers: [{name: main}]}}`,
			"node pool shared offers whole GPUs, and shares of one with at most 81500 MiB",
		},
		"a slice where there are none": {
			`{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}`,
			"node pool shared offers whole GPUs, and shares of one",
		},
		"all variables of somebody's ConfigMap": {
			`{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: main, envFrom: [{configMapRef: {name: mine}}]}]}}`,
			"imports all variables of a ConfigMap",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := admitPod(t, set, testProject, []input.NodePool{kaiSharedPool, kaiSparePool}, decodeYAML(t, example.pod)).rejection()
			if !strings.Contains(got, example.says) {
				t.Errorf("refused: %q, want %q", got, example.says)
			}
		})
	}
	t.Run("every GPU, without asking for one", func(t *testing.T) {
		pod := `{metadata: {}, spec: {schedulerName: kai-scheduler, containers: [{name: main, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}}`
		got := admitPod(t, set, testProject, []input.NodePool{kaiSharedPool}, decodeYAML(t, pod))
		if value := kaiFields(toPod(t, got.pod))["NVIDIA_VISIBLE_DEVICES"]; value != "void" {
			t.Errorf("NVIDIA_VISIBLE_DEVICES is %q", value)
		}
	})
	t.Run("a slice and a share", func(t *testing.T) {
		pod := decodeYAML(t, `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}`)
		if _, err := workload.ParsePod(toPod(t, pod)); err == nil || !strings.Contains(err.Error(), "keep one of the two") {
			t.Errorf("got %v", err)
		}
	})
}

// What is rendered for KAI-Scheduler, and for kai-resource-management in its stead,
// is what the golden files say: for a project, its department and a node pool.
func TestKAIObjects(t *testing.T) {
	project := testProject
	project.Resources = input.Resources{CPU: "64", Memory: "512Gi"}
	department := input.Department{Name: "students"}
	half := kaiSharedPool
	half.Guaranteed, half.Limit, half.Weight = 500, 1500, 4
	pools := []input.NodePool{half, kaiMIGPool, wholeGPUPool}
	for _, mode := range []string{"own", "adopt"} {
		set := compileWithAdoption(t, mode)
		for kind, in := range map[string]engine.Input{
			"Project":    {Project: newDocument(t, project), Department: newDocument(t, department), NodePools: newDocument(t, pools)},
			"Department": {Department: newDocument(t, department), NodePools: newDocument(t, pools)},
			"NodePool":   {NodePool: newDocument(t, kaiSharedPool)},
		} {
			name := mode + "-" + strings.ToLower(kind)
			t.Run(name, func(t *testing.T) {
				in.Object = newDocument(t, map[string]any{"apiVersion": "sluice.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "it"}})
				golden.Assert(t, renderKAI(t, set, in), filepath.Join("kai", name+".yaml"))
			})
		}
	}
}

// compileWithAdoption are the built-in policies with that parameter of schedulers.kai.
func compileWithAdoption(t *testing.T, mode string) *engine.Set {
	t.Helper()
	sources := policies.BuiltIn()
	for i := range sources {
		if sources[i].Name == "schedulers.kai" {
			sources[i].Parameters = []byte(`{"krm": "` + mode + `"}`)
		}
	}
	set, reports, err := engine.Compile(sources, engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	return set
}

// renderKAI is what policy schedulers.kai renders and requires, as YAML.
func renderKAI(t *testing.T, set *engine.Set, in engine.Input) string {
	t.Helper()
	rendering, err := set.RenderObjects(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for _, failure := range rendering.Failures {
		t.Errorf("%s: %v", failure.Policy, failure.Err)
	}
	for _, object := range rendering.Objects {
		if object.Policy == "schedulers.kai" {
			all = append(all, object.Value)
		}
	}
	for _, needed := range rendering.Requires {
		if needed.Policy == "schedulers.kai" {
			all = append(all, needed)
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
