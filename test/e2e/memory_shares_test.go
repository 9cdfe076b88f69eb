// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// withMemory makes a pod's processes use so much memory of each of its GPUs, in MiB.
func withMemory(mib string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationSimMemory, mib) }
}

// A pod that uses more GPU memory than its replica is warned, announced and evicted. Its neighbor on the same
// GPU is not touched, and neither is a pod that has a GPU's replicas for itself.
func TestMemoryShares(t *testing.T) {
	const ns = "sharing"
	c := newPolicyTimeCluster(t)
	c.shareGPUs(t, 4)
	c.configureLifecycle(t, map[string]any{"eviction": map[string]any{"noticePeriod": "20s"}})
	quota := newPoolQuota("dgx", "4", "4")
	c.createForTest(t, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: v1alpha1.DepartmentSpec{
		NodePools: []v1alpha1.PoolQuota{quota}, Contacts: []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}},
	}})
	c.createGovernedProject(t, ns, ns, quota)
	greedy := newPodWorkload(ns, "greedy", v1alpha1.ResourceNVIDIAGPU, withMemory("25000"))
	neighbor := newPodWorkload(ns, "neighbor", v1alpha1.ResourceNVIDIAGPU, withMemory("9000"))
	c.startWorkloads(t, greedy, neighbor)
	c.eventuallyAfterStep(t, func() error {
		own, _ := c.podUse(t, "dgx-1", greedy)
		other, _ := c.podUse(t, "dgx-1", neighbor)
		if own == nil || other == nil || !slices.Equal(own.Devices, other.Devices) || own.ShareMiB != 40960/4 || other.ShareMiB != own.ShareMiB {
			return unexpectedState("both pods have a quarter of one GPU", []any{own, other})
		}
		return nil
	})
	var announced corev1.Pod
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(greedy.Object), &announced); err != nil {
			return err
		}
		if announced.Annotations[v1alpha1.AnnotationPreemptReason] != string(v1alpha1.EndShareExceeded) {
			return unexpectedState("the eviction is announced", announced.Annotations)
		}
		return nil
	})
	findings := c.gpuNode(t, "dgx-1").Status.Findings
	if len(findings) != 1 || findings[0].PodUID != greedy.GetUID() || findings[0].Reason != v1alpha1.FindingShareExceeded ||
		findings[0].ExcessMiB != 25000-40960/4 {
		t.Errorf("findings %+v", findings)
	}
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(greedy.Object), &corev1.Pod{})
		if !apierrors.IsNotFound(err) {
			return unexpectedState("the pod is evicted", err)
		}
		return nil
	})
	c.eventuallyAfterStep(t, func() error {
		if left := c.gpuNode(t, "dgx-1").Status.Findings; len(left) > 0 {
			return unexpectedState("the finding is gone", left)
		}
		return nil
	})
	var kept corev1.Pod
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(neighbor.Object), &kept); err != nil {
		t.Fatal(err)
	}
	if kept.UID != neighbor.GetUID() || kept.DeletionTimestamp != nil || kept.Status.Phase != corev1.PodRunning ||
		slices.ContainsFunc(slices.Collect(maps.Keys(kept.Annotations)), func(key string) bool { return strings.HasPrefix(key, "sluice.dev/preempt") }) {
		t.Errorf("the neighbor is touched: %s, %v", kept.Status.Phase, kept.Annotations)
	}
	var warned []string
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeShareExceeded {
			warned = append(warned, n.Spec.Subject.Name+" "+n.Spec.Inputs["memoryMiB"])
		}
	}
	if !slices.Equal(warned, []string{"greedy 25000"}) {
		t.Errorf("notices %v", warned)
	}
	if output := c.mustKubectl(t, "get", "events", "-n", ns, "--field-selector", "reason=ShareExceeded"); !strings.Contains(output, "greedy") ||
		!strings.Contains(output, "its share is 10240 MiB") || strings.Contains(output, "neighbor") {
		t.Errorf("events\n%s", output)
	}
}

func (c *policyTimeCluster) gpuNode(t *testing.T, name string) *v1alpha1.GPUNode {
	t.Helper()
	node := &v1alpha1.GPUNode{}
	if err := c.adminClient.Get(t.Context(), types.NamespacedName{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// shareGPUs makes the device plugin of node dgx-1 offer replicas of its GPUs, in a pool with time-slicing.
func (c *policyTimeCluster) shareGPUs(t *testing.T, replicas int) {
	t.Helper()
	report, err := c.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, "components", "fakekubelet", "config.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config["nodes"].([]any)[0].(map[string]any)["machine"].(map[string]any)["replicas"] = replicas
	if raw, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}}
	if err := c.adminClient.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sharing":"TimeSlicing"}}`))); err != nil {
		t.Fatal(err)
	}
	for _, component := range report.Components {
		if component.Name == "fakekubelet" {
			if err := syscall.Kill(component.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			c.eventuallyAfterStep(t, func() error { return c.restarted(t.Context(), "fakekubelet", component.PID) })
		}
	}
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if models := pool.Status.Products; len(models) != 1 || int(models[0].Replicas) != replicas {
			return unexpectedState("the pool has replicas", models)
		}
		return nil
	})
}
