// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

const (
	// migNode is the node whose GPUs are in MIG mode, and not partitioned at first.
	migNode = "dgx-2"
	// migAgent is the component that partitions the GPUs of migNode.
	migAgent = "gpuagent-" + migNode
	// repartitionTimeout covers several consecutive changes of one node on a busy machine.
	repartitionTimeout = 5 * time.Minute
)

// migCluster is a cluster with a project whose quota covers all GPUs of migNode.
type migCluster struct {
	*sluiceCluster
	ns          string
	podFailures func() []string
}

func newMIGCluster(t *testing.T) *migCluster {
	t.Helper()
	g := &migCluster{sluiceCluster: newDedicatedCluster(t), ns: "slices"}
	g.createDepartment(t, "cutters", newPoolQuota("dgx-mig", "8", "8"))
	g.createGovernedProject(t, "cutters", g.ns, newPoolQuota("dgx-mig", "8", "8"))
	g.podFailures = g.watchFailures(t)
	return g
}

// eventuallyAfterRepartition waits for an effect of a change of the layout.
func (g *migCluster) eventuallyAfterRepartition(t *testing.T, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, repartitionTimeout, condition)
}

// watchFailures watches the project's pods. The returned function lists the pods that have
// failed, were evicted, or had a container restarted since.
func (g *migCluster) watchFailures(t *testing.T) func() []string {
	t.Helper()
	events, err := g.clientset.CoreV1().Pods(g.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, done := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			p, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil {
				found[fmt.Sprintf("%s failed: %s: %s", p.Name, p.Status.Reason, p.Status.Message)] = true
			}
			for _, c := range p.Status.ContainerStatuses {
				if c.RestartCount > 0 {
					found[p.Name+" was restarted"] = true
				}
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.DisruptionTarget {
					found[p.Name+" was evicted: "+c.Message] = true
				}
			}
		}
	}()
	return func() []string {
		events.Stop()
		<-done
		return slices.Sorted(maps.Keys(found))
	}
}

// createMIGPods creates n pods that each request one MIG device of a profile.
func (g *migCluster) createMIGPods(t *testing.T, name, profile string, n int) {
	t.Helper()
	for i := range n {
		g.createPod(t, newPod(g.ns, fmt.Sprintf("%s-%d", name, i), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				v1alpha1.ResourceMIG(v1alpha1.MIGProfile(profile)): resource.MustParse("1"),
			}
		}))
	}
}

// waitForRunningCount waits until n pods run and no others exist.
func (g *migCluster) waitForRunningCount(t *testing.T, n int) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		var notRunning []string
		pods := g.listPods(t, g.ns)
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning {
				notRunning = append(notRunning, pods[i].Name)
			}
		}
		if len(notRunning) > 0 || len(pods) != n {
			return unexpectedState(fmt.Sprintf("%d pods run", n), fmt.Sprintf("of %d these do not: %v; %s", len(pods), notRunning, g.plannerStatus(t)))
		}
		return nil
	})
}

// plannerStatus returns the condition Planned of the node pool.
func (g *migCluster) plannerStatus(t *testing.T) string {
	p := newNodePool("dgx-mig")
	if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		return err.Error()
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionPlanned {
			return fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return "no condition Planned"
}

func (g *migCluster) getGPUNode(t *testing.T) *v1alpha1.GPUNode {
	t.Helper()
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: migNode}}
	if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// devicePlacements maps the names of the project's pods to their MIG devices and GPUs.
func (g *migCluster) devicePlacements(t *testing.T) map[string]string {
	t.Helper()
	placements := map[string]string{}
	for _, gpu := range g.getGPUNode(t).Status.GPUs {
		for _, instance := range gpu.Instances {
			if instance.Pod != nil && instance.Pod.Namespace == g.ns {
				placements[instance.Pod.Name] = fmt.Sprintf("%s@%d of %s: %s", instance.Profile, instance.Start, gpu.UUID, instance.UUID)
			}
		}
	}
	return placements
}

// halfOfGPU returns the half of a GPU that contains the device. The device must fit into one
// half.
func halfOfGPU(placement string) string {
	device, rest, _ := strings.Cut(placement, " of ")
	gpu, _, _ := strings.Cut(rest, ":")
	_, start, _ := strings.Cut(device, "@")
	if start < "4" {
		return gpu + ", first half"
	}
	return gpu + ", second half"
}

// waitForPlacements waits until the agent reports the devices of n pods.
func (g *migCluster) waitForPlacements(t *testing.T, n int) map[string]string {
	t.Helper()
	var placements map[string]string
	g.eventuallyAfterRepartition(t, func() error {
		if placements = g.devicePlacements(t); len(placements) != n {
			return unexpectedState(fmt.Sprintf("%d pods have a device", n), placements)
		}
		return nil
	})
	return placements
}

// waitForStableNode waits until the layout of the node is applied and its taint is removed.
func (g *migCluster) waitForStableNode(t *testing.T) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		var node corev1.Node
		if err := g.adminClient.Get(t.Context(), client.ObjectKey{Name: migNode}, &node); err != nil {
			return err
		}
		if gpuNode := g.getGPUNode(t); len(node.Spec.Taints) > 0 || gpuNode.Status.ObservedGeneration != gpuNode.Generation {
			return unexpectedState("the node is stable", fmt.Sprint(node.Spec.Taints, gpuNode.Generation, gpuNode.Status.ObservedGeneration))
		}
		return nil
	})
}

// kubectlGPUNode returns the output of kubectl for the node's GPUs.
func (g *migCluster) kubectlGPUNode(t *testing.T) string {
	t.Helper()
	return g.mustKubectl(t, "get", "gpunodes", migNode)
}

// agentStatusOutput returns the output of `gpuagent status` on the node.
func (g *migCluster) agentStatusOutput(t *testing.T) string {
	t.Helper()
	agent := filepath.Join(filepath.Dir(g.binary), "sluice-lab-gpuagent")
	status := exec.CommandContext(t.Context(), agent, "status", "-config", g.configurationFile(migAgent))
	status.Env = append(os.Environ(), "NODE_NAME="+migNode)
	out, err := status.CombinedOutput()
	if err != nil {
		t.Fatalf("gpuagent status: %v: %s", err, out)
	}
	return string(out)
}

func (g *migCluster) deletePods(t *testing.T) {
	t.Helper()
	if err := g.clientset.CoreV1().Pods(g.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	g.eventuallyAfterRepartition(t, func() error {
		if left := g.listPods(t, g.ns); len(left) > 0 {
			return unexpectedState("no pod exists", len(left))
		}
		return nil
	})
}

// Unpartitioned GPUs are partitioned for what pods request. Pods with a device keep it, and
// idle devices are removed when pods need the space.
func TestGPUsArePartitionedOnDemand(t *testing.T) {
	g := newMIGCluster(t)

	// The GPUs are not partitioned.
	start := time.Now()
	for profile, name := range map[string]string{"1g.5gb": "small", "2g.10gb": "middle", "3g.20gb": "large"} {
		g.createMIGPods(t, name, profile, 1)
	}
	g.waitForRunningCount(t, 3)
	t.Logf("three pods run on unpartitioned GPUs, %s after their creation", time.Since(start).Round(100*time.Millisecond))
	busy := g.waitForPlacements(t, 3)
	g.waitForStableNode(t)
	row := regexp.MustCompile(`(?m)^dgx-2 +dgx-mig +True +Applied +1g\.5gb 1/1, 2g\.10gb 1/1, 3g\.20gb 1/1 +NVIDIA A100-SXM4-40GB `)
	if output := g.kubectlGPUNode(t); !row.MatchString(output) || !strings.Contains(output, "LAYOUT") || !strings.Contains(output, "SLICES") {
		t.Errorf("kubectl get gpunodes shows\n%s\nwant three MIG devices, all in use", output)
	}
	output := g.agentStatusOutput(t)
	for _, text := range []string{"dgx-2   8 GPUs", "slices/small-0", "slices/middle-0", "slices/large-0", "1g.5gb", "2g.10gb", "3g.20gb"} {
		if !strings.Contains(output, text) {
			t.Errorf("the output of gpuagent status does not contain %q:\n%s", text, output)
		}
	}

	// Fill all free halves of GPUs, including those of GPUs in use.
	usedHalves := map[string]bool{}
	for _, placement := range busy {
		usedHalves[halfOfGPU(placement)] = true
	}
	n := 16 - len(usedHalves)
	start = time.Now()
	g.createMIGPods(t, "half", "3g.20gb", n)
	g.waitForRunningCount(t, 3+n)
	t.Logf("%d more pods, on all remaining halves of GPUs, run after %s", n, time.Since(start).Round(100*time.Millisecond))
	g.waitForStableNode(t)
	current := g.waitForPlacements(t, 3+n)
	for name, placement := range busy {
		if current[name] != placement {
			t.Errorf("pod %s had device %q and has %q", name, placement, current[name])
		}
	}
	for _, placement := range current {
		usedHalves[halfOfGPU(placement)] = true
	}
	if len(usedHalves) != 16 {
		t.Errorf("the pods use %d halves of GPUs, want all sixteen: %v", len(usedHalves), current)
	}

	// The pods end, and others request eight whole GPUs.
	g.deletePods(t)
	start = time.Now()
	g.createMIGPods(t, "whole", "7g.40gb", 8)
	g.waitForRunningCount(t, 8)
	t.Logf("eight pods with a whole GPU each, instead of idle MIG devices, run after %s", time.Since(start).Round(100*time.Millisecond))
	g.waitForStableNode(t)
	g.waitForPlacements(t, 8)
	if got := g.getGPUNode(t).Status.Slices; got != "7g.40gb 8/8" {
		t.Errorf("the node has the MIG devices %q, want 7g.40gb 8/8", got)
	}
	if failed := g.podFailures(); len(failed) > 0 {
		t.Errorf("pods failed:\n%s", strings.Join(failed, "\n"))
	}
}

// A change completes although a component is killed in the middle of it, and no pod fails.
// Guards invariants 7 and 8 of the design.
func TestKillDuringRepartition(t *testing.T) {
	g := newMIGCluster(t)
	pods := 0
	tainted := func() error {
		var node corev1.Node
		if err := g.adminClient.Get(t.Context(), client.ObjectKey{Name: migNode}, &node); err != nil {
			return err
		}
		if len(node.Spec.Taints) == 0 {
			return unexpectedState("the node is tainted", node.Spec.Taints)
		}
		return nil
	}
	layoutWritten := func() error {
		if gpuNode := g.getGPUNode(t); gpuNode.Generation == gpuNode.Status.ObservedGeneration {
			return unexpectedState("the spec has a new layout", gpuNode.Generation)
		}
		return nil
	}
	for _, round := range []struct {
		name, victim, profile string
		when                  func() error
	}{
		{"lifecycle after it tainted the node", "lifecycle", "3g.20gb", tainted},
		{"the agent before it repartitions", migAgent, "2g.10gb", tainted},
		{"lifecycle after it wrote the layout", "lifecycle", "1g.5gb", layoutWritten},
		{"the agent while it repartitions", migAgent, "1g.10gb", layoutWritten},
		{"the device plugin after the layout was written", "fakekubelet", "4g.20gb", layoutWritten},
	} {
		t.Run(round.name, func(t *testing.T) {
			before := g.devicePlacements(t)
			g.waitForStableNode(t)
			g.createMIGPods(t, strings.ReplaceAll(round.profile, ".", "-"), round.profile, 3)
			pods += 3
			clustertest.EventuallyWithin(t, repartitionTimeout, round.when)
			g.killAndAwaitRestart(t, round.victim)
			g.waitForRunningCount(t, pods)
			g.waitForStableNode(t)
			current := g.waitForPlacements(t, pods)
			for name, placement := range before {
				if current[name] != placement {
					t.Errorf("pod %s had device %q and has %q", name, placement, current[name])
				}
			}
		})
	}
	if failed := g.podFailures(); len(failed) > 0 {
		t.Errorf("pods failed:\n%s", strings.Join(failed, "\n"))
	}
}

// killAndAwaitRestart kills a component and waits until it runs again.
func (g *migCluster) killAndAwaitRestart(t *testing.T, component string) {
	t.Helper()
	pid := g.componentPID(t, component)
	killProcess(t, pid)
	clustertest.EventuallyWithin(t, restartTimeout, func() error { return g.restarted(context.Background(), component, pid) })
}
