// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// Pods are charged what KAI-Scheduler counts, and a request that it would never place is refused: before, twenty pods of a
// share that counted as nothing ran in a project of a twentieth of a GPU. The golden file is the scheduler's own result. Guards
// invariant 3 of the design.
func TestPodsAreChargedWhatKAICounts(t *testing.T) {
	set := compileBuiltIn(t)
	golden, err := os.ReadFile(filepath.Join("testdata", "kai", "counted.txt"))
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{} // by gpu-fraction, on one GPU
	rows := 0
	for line := range strings.Lines(string(golden)) {
		var memory, request, devices int64
		var fraction string
		var gpus float64
		if n, _ := fmt.Sscanf(line, "share %s %d %g", &fraction, &devices, &gpus); n == 3 {
			if devices == 1 {
				counted[fraction] = int64(math.Round(gpus * 1000))
			}
			annotations := fmt.Sprintf(`gpu-fraction: %q, gpu-fraction-num-devices: "%d"`, fraction, devices)
			checkCharge(t, set, kaiSharedPool, annotations, int64(math.Round(gpus*1000)))
			rows++
		}
		if n, _ := fmt.Sscanf(line, "memory %d %d %g", &memory, &request, &gpus); n == 3 {
			pool := kaiSharedPool
			pool.Products = []input.GPUModel{{Name: "GPU", MemoryMiB: memory}}
			checkCharge(t, set, pool, fmt.Sprintf(`gpu-memory: "%d"`, request), int64(math.Round(gpus*1000)))
			rows++
		}
	}
	if len(counted) != 99 || rows < 400 {
		t.Fatalf("the golden file has %d shares and %d rows", len(counted), rows)
	}
	for _, milli := range []int64{1, 4, 5, 10, 11, 125, 130, 333, 500, 666, 989, 990} {
		pod := checkCharge(t, set, kaiSharedPool, fmt.Sprintf(`sluice.dev/gpu: "%dm"`, milli), (milli+9)/10*10)
		if fraction := pod.Annotations[v1alpha1.AnnotationGPUFraction]; counted[fraction] != (milli+9)/10*10 {
			t.Errorf("%dm: KAI counts %d for gpu-fraction %q", milli, counted[fraction], fraction)
		}
	}
	checkCharge(t, set, kaiSharedPool, `sluice.dev/gpu: "991m"`, 1000)
}

// checkCharge checks the charge of a pod with annotations; above a GPU, that it is refused.
func checkCharge(t *testing.T, set *engine.Set, pool input.NodePool, annotations string, want int64) *corev1.Pod {
	t.Helper()
	pool.Limit, pool.Guaranteed = 100_000, 100_000
	pod := decodeYAML(t, `{metadata: {annotations: {`+annotations+`}}, spec: {containers: [{name: main}]}}`)
	admitted := admitPod(t, set, testProject, []input.NodePool{pool}, pod)
	if want > 1000 && strings.Contains(annotations, "gpu-memory") {
		memory := pool.Products[0].MemoryMiB
		if said := fmt.Sprintf("request at most %d MiB, or a whole GPU", memory-memory%100); !strings.Contains(admitted.rejection(), said) {
			t.Errorf("%s: refused with %q, want %q", annotations, admitted.rejection(), said)
		}
		return nil
	}
	if refused := admitted.rejection(); refused != "" {
		t.Fatalf("%s: %s", annotations, refused)
	}
	result := toPod(t, admitted.pod)
	charge := result.Spec.Containers[0].Resources.Limits[pool.QuotaResource]
	if charge.Value() != want {
		t.Errorf("%s on GPUs of %d MiB: charged %d, KAI counts %d", annotations, pool.Products[0].MemoryMiB, charge.Value(), want)
	}
	return result
}

// KAI-Scheduler adds the shares of a queue in binary fractions and compares the sum with the limit without a tolerance
// (isOverLimit of pkg/scheduler/plugins/proportion/capacity_policy): of three shares of 0.1, the last never ran in a project of
// 0.3. So many pods run as the limit allows, and none more. Limits in whole GPUs have no margin, since it would take a GPU from the
// share of another queue. Guards invariant 3 of the design.
func TestKAIRunsWhatTheLimitAllows(t *testing.T) {
	set := compileBuiltIn(t)
	for _, pods := range []int{3, 7, 10} {
		for milli := 10; milli < 1000; milli += 30 {
			if pods*milli%1000 == 0 {
				continue
			}
			pool := kaiSharedPool
			pool.Limit, pool.Guaranteed = workload.Milli(pods*milli), workload.Milli(pods*milli)
			queue := renderQueue(t, set, pool)
			for _, field := range []string{"limit", "quota"} {
				number, _, _ := unstructured.NestedFieldNoCopy(queue, "spec", "resources", "gpu", field)
				most, err := strconv.ParseFloat(fmt.Sprint(number), 64)
				if err != nil {
					t.Fatal(err)
				}
				allocated, running := 0.0, 0
				for share := float64(milli) / 1000; most >= allocated+share; running++ {
					allocated += share
				}
				if running != pods {
					t.Errorf("%d of %d pods of %dm run with a %s of %g", running, pods, milli, field, most)
				}
			}
		}
	}
}

// renderQueue returns the queue of project thesis in a pool.
func renderQueue(t *testing.T, set *engine.Set, pool input.NodePool) map[string]any {
	t.Helper()
	project := map[string]any{"apiVersion": "sluice.dev/v1alpha1", "kind": "Project", "metadata": map[string]any{"name": "thesis"}}
	rendering, err := set.RenderObjects(t.Context(), engine.Input{
		Object: newDocument(t, project), Project: newDocument(t, testProject), NodePools: newDocument(t, []input.NodePool{pool}),
		Department: newDocument(t, input.Department{Name: "students"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range rendering.Objects {
		if object.Value["kind"] == kaigroup.QueueKind.Kind {
			return object.Value
		}
	}
	t.Fatal("no queue was rendered")
	return nil
}
