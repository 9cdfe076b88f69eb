// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

func TestNodesReady(t *testing.T) {
	w := newTestEnv(t)
	for name, want := range map[string]map[corev1.ResourceName]string{
		wholeGPUNode:    {"nvidia.com/gpu": "8", "cpu": "256"},
		partitionedNode: {"nvidia.com/mig-1g.5gb": "16", "nvidia.com/mig-2g.10gb": "8", "nvidia.com/mig-3g.20gb": "8"},
	} {
		clustertest.Eventually(t, func() error {
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if !ready || len(node.Spec.Taints) > 0 {
				return fmt.Errorf("node %s: %+v, taints %v", name, node.Status.Conditions, node.Spec.Taints)
			}
			for resource, quantity := range want {
				capacity, allocatable := node.Status.Capacity[resource], node.Status.Allocatable[resource]
				if capacity.String() != quantity || allocatable.String() != quantity {
					return fmt.Errorf("node %s has %s of %s, %s allocatable; want %s", name, capacity.String(), resource,
						allocatable.String(), quantity)
				}
			}
			if got := node.Labels["nvidia.com/gpu.product"]; got != "NVIDIA-A100-SXM4-40GB" {
				return fmt.Errorf("node %s is labeled with product %q", name, got)
			}
			_, err = w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
	}
}

func TestPodGetsDevicesAndRuns(t *testing.T) {
	w := newTestEnv(t)
	always := corev1.ContainerRestartPolicyAlways
	one := corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	created := w.createAndWaitRunning(newTestPod("train").onNode(wholeGPUNode).requestingGPUs(2).with(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "prepare", Image: "busybox", Resources: one},
			{Name: "log", Image: "fluentbit", RestartPolicy: &always},
		}
	}))
	if findCondition(created, corev1.PodReady).Status != corev1.ConditionTrue || created.Status.PodIP == "" || created.Status.StartTime == nil {
		t.Errorf("a running pod is not ready, or has no address or start time: %+v", created.Status)
	}
	want := map[string][]string{"train/main": {devices.GPUID(wholeGPUNode, 0), devices.GPUID(wholeGPUNode, 1)}}
	if diff := cmp.Diff(want, w.deviceHolders(wholeGPUNode)); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if err := withPodResources(socketOf(w.cluster.Dir(), wholeGPUNode), func(c podresourcesv1.PodResourcesListerClient) error {
		got, err := c.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodNamespace: w.namespace, PodName: "train"})
		if err != nil {
			return err
		}
		var containers []string
		for _, container := range got.PodResources.Containers {
			containers = append(containers, container.Name)
		}
		if diff := cmp.Diff([]string{"log", "main"}, containers); diff != "" {
			t.Errorf("Get: containers (-want +got):\n%s", diff)
		}
		if _, err := c.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodNamespace: w.namespace, PodName: "none"}); err == nil ||
			!strings.Contains(err.Error(), "pod none in namespace "+w.namespace+" not found") {
			t.Errorf("Get of a pod that is not there: %v", err)
		}
		all, err := c.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
		if len(all.GetDevices()) != 8 {
			t.Errorf("GetAllocatableResources: %d devices, want 8", len(all.GetDevices()))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestNinthPodWaitsAndTenthIsRejected(t *testing.T) {
	w := newTestEnv(t)
	for i := range 9 {
		w.create(newTestPod(fmt.Sprintf("one-%d", i)).onNode(wholeGPUNode).requestingGPUs(1))
	}
	clustertest.Eventually(t, func() error {
		if held := w.deviceHolders(wholeGPUNode); len(held) != 8 {
			return fmt.Errorf("%d pods hold devices, want 8: %v", len(held), held)
		}
		return nil
	})
	var ids []string
	for _, held := range w.deviceHolders(wholeGPUNode) {
		ids = append(ids, held...)
	}
	slices.Sort(ids)
	if distinct := slices.Compact(slices.Clone(ids)); len(ids) != 8 || len(distinct) != 8 {
		t.Errorf("the devices held are %v, want eight different ones", ids)
	}
	var waiting string
	clustertest.Eventually(t, func() error {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			} else if findCondition(&p, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable {
				waiting = p.Name
			}
		}
		if running != 8 || waiting == "" {
			return fmt.Errorf("%d pods run, and the one that waits is %q", running, waiting)
		}
		return nil
	})

	w.create(newTestPod("tenth").boundTo(wholeGPUNode).requestingGPUs(1))
	tenth := w.waitForPhase("tenth", corev1.PodFailed)
	wantMessage := "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. " +
		"Requested: 1, Available: 0, which is unexpected"
	if tenth.Status.Reason != "UnexpectedAdmissionError" || tenth.Status.Message != wantMessage {
		t.Errorf("the tenth failed with %s: %s", tenth.Status.Reason, tenth.Status.Message)
	}

	// The ninth pod gets the device of the first deleted one after its processes have
	// ended, and is not rejected before.
	var first string
	for name := range w.deviceHolders(wholeGPUNode) {
		first, _, _ = strings.Cut(name, "/")
		break
	}
	w.delete(first, metav1.DeleteOptions{})
	w.waitForPhase(waiting, corev1.PodRunning)
	if got := w.waitForPhase("tenth", corev1.PodFailed); len(got.Status.ContainerStatuses) > 0 {
		t.Errorf("the rejected pod has run: %+v", got.Status.ContainerStatuses)
	}
}

func TestMIGDevices(t *testing.T) {
	w := newTestEnv(t)
	w.createAndWaitRunning(newTestPod("small").onNode(partitionedNode).
		requesting("nvidia.com/mig-1g.5gb", "3").requesting("nvidia.com/mig-3g.20gb", "1"))
	resources := map[string]string{}
	for _, device := range devices.OfGPUs(w.readGPUs(partitionedNode)) {
		resources[device.ID] = device.Resource
	}
	held := map[string]int{}
	for _, id := range w.deviceHolders(partitionedNode)["small/main"] {
		held[resources[id]]++
	}
	if diff := cmp.Diff(map[string]int{"nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-3g.20gb": 1}, held); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.create(newTestPod("whole").boundTo(partitionedNode).requestingGPUs(1))
	if got := w.waitForPhase("whole", corev1.PodFailed); got.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("a whole GPU on a partitioned node: %s: %s", got.Status.Reason, got.Status.Message)
	}
}

func TestPodsOnOtherNodesAreIgnored(t *testing.T) {
	w := newTestEnv(t)
	w.create(newTestPod("elsewhere").boundTo("real-node").requestingGPUs(1))
	w.createAndWaitRunning(newTestPod("here").onNode(wholeGPUNode).requestingGPUs(1)) // created after it
	if got := w.waitForPhase("elsewhere", corev1.PodPending); findCondition(got, corev1.PodReadyToStartContainers).Status != "" {
		t.Errorf("a pod on another node was admitted: %+v", got.Status)
	}
}

func TestDevicesHeldUntilProcessesExit(t *testing.T) {
	w := newTestEnv(t)
	const delay = 4 * time.Second
	w.createAndWaitRunning(newTestPod("old").onNode(wholeGPUNode).requestingGPUs(8).withAnnotation(fakekubelet.ExitDelay, delay.String()))
	deleted := time.Now()
	w.delete("old", *metav1.NewDeleteOptions(0))
	w.create(newTestPod("next").onNode(wholeGPUNode).requestingGPUs(8))
	next := w.waitForPhase("next", corev1.PodRunning)
	if waited := time.Since(deleted); waited < delay {
		t.Errorf("the next pod ran %s after the deletion, want at least %s", waited, delay)
	}
	if opened := findCondition(next, corev1.PodReadyToStartContainers).LastTransitionTime; opened.Add(time.Second).Before(deleted.Add(delay)) {
		t.Errorf("the pod became ready to start at %s, want %s after %s", opened, delay, deleted)
	}
}

func TestForeignNodeResourcesKept(t *testing.T) {
	w := newTestEnv(t)
	patch := func(status string) {
		t.Helper()
		if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), wholeGPUNode, types.MergePatchType, []byte(status),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"status":{"capacity":{"sluice.dev/gpu-milli":"8k"},"allocatable":{"sluice.dev/gpu-milli":"8k"}}}`)
	w.createAndWaitRunning(newTestPod("fits").boundTo(wholeGPUNode).requesting("sluice.dev/gpu-milli", "7k"))
	w.create(newTestPod("too-much").boundTo(wholeGPUNode).requesting("sluice.dev/gpu-milli", "1500"))
	got := w.waitForPhase("too-much", corev1.PodFailed)
	want := "Pod was rejected: Node didn't have enough resource: sluice.dev/gpu-milli, requested: 1500, used: 7000, capacity: 8000"
	if got.Status.Reason != "OutOfsluice.dev/gpu-milli" || got.Status.Message != want {
		t.Errorf("rejected with %s: %s", got.Status.Reason, got.Status.Message)
	}

	// The kubelet corrects its devices and keeps others' resources.
	patch(`{"status":{"capacity":{"nvidia.com/gpu":"3","nvidia.com/mig-1g.5gb":"7"},"allocatable":{"nvidia.com/gpu":"3"}}}`)
	clustertest.Eventually(t, func() error {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), wholeGPUNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := map[corev1.ResourceName]int64{}
		for _, name := range []corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "sluice.dev/gpu-milli"} {
			quantity := node.Status.Capacity[name]
			got[name] = quantity.Value()
		}
		if diff := cmp.Diff(map[corev1.ResourceName]int64{
			"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 0,
			"sluice.dev/gpu-milli": 8000,
		}, got); diff != "" {
			return fmt.Errorf("capacity (-want +got):\n%s", diff)
		}
		return nil
	})
}
