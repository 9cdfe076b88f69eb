// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
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
	"sluice.dev/test/cluster/clustertest"
)

const (
	// migNode is the node whose GPUs are in MIG mode, and empty at first.
	migNode = "dgx-2"
	// migAgent is the component that cuts them.
	migAgent = "gpuagent-" + migNode
	// repartitionTimeout covers several changes of one node in turn, on a busy machine.
	repartitionTimeout = 3 * time.Minute
)

// migCluster is a cluster with a project that may have all slices of cutNode.
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

// eventuallyAfterRepartition waits for what follows from a change of GPUs.
func (g *migCluster) eventuallyAfterRepartition(t *testing.T, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, repartitionTimeout, condition)
}

// watchFailures begins to watch the project's pods. The result says which of them have
// failed, were evicted, or had a container started again since.
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
					found[p.Name+" was started again"] = true
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

// createMIGPods makes n pods that each ask for one slice of a profile.
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

// waitForRunningCount waits until so many pods run, and no more are there.
func (g *migCluster) waitForRunningCount(t *testing.T, n int) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		var waiting []string
		pods := g.listPods(t, g.ns)
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning {
				waiting = append(waiting, pods[i].Name)
			}
		}
		if len(waiting) > 0 || len(pods) != n {
			return unexpectedState(fmt.Sprintf("%d pods run", n), fmt.Sprintf("of %d these do not: %v; %s", len(pods), waiting, g.plannerStatus(t)))
		}
		return nil
	})
}

// plannerStatus is what the planner says of the pool.
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
	return "nothing was planned"
}

func (g *migCluster) getGPUNode(t *testing.T) *v1alpha1.GPUNode {
	t.Helper()
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: migNode}}
	if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// devicePlacements are the MIG devices of the project's pods, with their boards, by the pods'
// names.
func (g *migCluster) devicePlacements(t *testing.T) map[string]string {
	t.Helper()
	places := map[string]string{}
	for _, gpu := range g.getGPUNode(t).Status.GPUs {
		for _, instance := range gpu.Instances {
			if instance.Pod != nil && instance.Pod.Namespace == g.ns {
				places[instance.Pod.Name] = fmt.Sprintf("%s@%d of %s: %s", instance.Profile, instance.Start, gpu.UUID, instance.UUID)
			}
		}
	}
	return places
}

// halfOfGPU is the half of a board on which a place of half a board at most is.
func halfOfGPU(place string) string {
	at, after, _ := strings.Cut(place, " of ")
	board, _, _ := strings.Cut(after, ":")
	_, start, _ := strings.Cut(at, "@")
	if start < "4" {
		return board + ", first half"
	}
	return board + ", second half"
}

// waitForPlacements waits until the agent has said where n pods are.
func (g *migCluster) waitForPlacements(t *testing.T, n int) map[string]string {
	t.Helper()
	var places map[string]string
	g.eventuallyAfterRepartition(t, func() error {
		if places = g.devicePlacements(t); len(places) != n {
			return unexpectedState(fmt.Sprintf("%d pods have a place", n), places)
		}
		return nil
	})
	return places
}

// waitForStableNode waits until no change of the node is under way, and its taint is gone.
func (g *migCluster) waitForStableNode(t *testing.T) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		var node corev1.Node
		if err := g.adminClient.Get(t.Context(), client.ObjectKey{Name: migNode}, &node); err != nil {
			return err
		}
		if of := g.getGPUNode(t); len(node.Spec.Taints) > 0 || of.Status.ObservedGeneration != of.Generation {
			return unexpectedState("the node is at rest", fmt.Sprint(node.Spec.Taints, of.Generation, of.Status.ObservedGeneration))
		}
		return nil
	})
}

// kubectlGPUNode is what kubectl shows of the node's GPUs.
func (g *migCluster) kubectlGPUNode(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", filepath.Join(g.dir, "kubeconfig"), "get", "gpunodes", migNode).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl get gpunodes: %v: %s", err, out)
	}
	return string(out)
}

// agentStatusOutput is what the agent's own status shows, on the node.
func (g *migCluster) agentStatusOutput(t *testing.T) string {
	t.Helper()
	agent := filepath.Join(filepath.Dir(g.binary), "gpuagent")
	out, err := exec.CommandContext(t.Context(), agent, "status", "-config", filepath.Join(g.dir, "components", migAgent, "config.yaml")).CombinedOutput()
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
			return unexpectedState("all pods are gone", len(left))
		}
		return nil
	})
}

// GPUs that nobody has cut are cut into what pods ask for; those who have a slice
// notice nothing; and what lies idle is given up for who needs the room.
func TestGPUsArePartitionedOnDemand(t *testing.T) {
	g := newMIGCluster(t)

	// An empty node.
	begin := time.Now()
	for profile, name := range map[string]string{"1g.5gb": "small", "2g.10gb": "middle", "3g.20gb": "large"} {
		g.createMIGPods(t, name, profile, 1)
	}
	g.waitForRunningCount(t, 3)
	t.Logf("three pods run on GPUs that nobody had cut, %s after they were asked for", time.Since(begin).Round(100*time.Millisecond))
	busy := g.waitForPlacements(t, 3)
	g.waitForStableNode(t)
	row := regexp.MustCompile(`(?m)^dgx-2 +dgx-mig +True +Applied +1g\.5gb 1/1, 2g\.10gb 1/1, 3g\.20gb 1/1 +NVIDIA A100-SXM4-40GB `)
	if shown := g.kubectlGPUNode(t); !row.MatchString(shown) || !strings.Contains(shown, "LAYOUT") || !strings.Contains(shown, "SLICES") {
		t.Errorf("kubectl get gpunodes shows\n%s\nwant three slices, all in use", shown)
	}
	drawn := g.agentStatusOutput(t)
	for _, word := range []string{"dgx-2   8 GPUs", "slices/small-0", "slices/middle-0", "slices/large-0", "1g.5gb", "2g.10gb", "3g.20gb"} {
		if !strings.Contains(drawn, word) {
			t.Errorf("gpuagent status does not show %q:\n%s", word, drawn)
		}
	}

	// All halves of boards that nobody has, on the busy boards too.
	taken := map[string]bool{}
	for _, place := range busy {
		taken[halfOfGPU(place)] = true
	}
	n := 16 - len(taken)
	begin = time.Now()
	g.createMIGPods(t, "half", "3g.20gb", n)
	g.waitForRunningCount(t, 3+n)
	t.Logf("%d more pods, on all halves of boards that were left, run after %s", n, time.Since(begin).Round(100*time.Millisecond))
	g.waitForStableNode(t)
	now := g.waitForPlacements(t, 3+n)
	for name, place := range busy {
		if now[name] != place {
			t.Errorf("pod %s was at %q and is at %q", name, place, now[name])
		}
	}
	for _, place := range now {
		taken[halfOfGPU(place)] = true
	}
	if len(taken) != 16 {
		t.Errorf("the pods are on %d halves of boards, want all sixteen: %v", len(taken), now)
	}

	// They end, and eight whole GPUs are asked for.
	g.deletePods(t)
	begin = time.Now()
	g.createMIGPods(t, "whole", "7g.40gb", 8)
	g.waitForRunningCount(t, 8)
	t.Logf("eight pods with a GPU each, in place of idle slices, run after %s", time.Since(begin).Round(100*time.Millisecond))
	g.waitForStableNode(t)
	g.waitForPlacements(t, 8)
	if got := g.getGPUNode(t).Status.Slices; got != "7g.40gb 8/8" {
		t.Errorf("the node has the slices %q, want 7g.40gb 8/8", got)
	}
	if failed := g.podFailures(); len(failed) > 0 {
		t.Errorf("pods came to harm:\n%s", strings.Join(failed, "\n"))
	}
}

// Whoever is killed in the middle of a change, it is completed, and nobody comes to
// harm. Guards invariants 7 and 8 of the design.
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
	asked := func() error {
		if of := g.getGPUNode(t); of.Generation == of.Status.ObservedGeneration {
			return unexpectedState("the agent is asked for a layout", of.Generation)
		}
		return nil
	}
	for _, round := range []struct {
		name, victim, profile string
		when                  func() error
	}{
		{"lifecycle when the node is tainted", "lifecycle", "3g.20gb", tainted},
		{"the agent before it has begun", migAgent, "2g.10gb", tainted},
		{"lifecycle when the layout is written", "lifecycle", "1g.5gb", asked},
		{"the agent at work", migAgent, "1g.10gb", asked},
		{"the device plugin when the layout is written", "fakekubelet", "4g.20gb", asked},
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
			now := g.waitForPlacements(t, pods)
			for name, place := range before {
				if now[name] != place {
					t.Errorf("pod %s was at %q and is at %q", name, place, now[name])
				}
			}
		})
	}
	if failed := g.podFailures(); len(failed) > 0 {
		t.Errorf("pods came to harm:\n%s", strings.Join(failed, "\n"))
	}
}

// killAndAwaitRestart kills a component's process, and returns once it has come back.
func (g *migCluster) killAndAwaitRestart(t *testing.T, component string) {
	t.Helper()
	before, err := g.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range before.Components {
		if c.Name == component {
			killProcess(t, c.PID)
			clustertest.EventuallyWithin(t, restartTimeout, func() error { return g.restarted(context.Background(), c.Name, c.PID) })
			return
		}
	}
	t.Fatalf("%s is not in the report", component)
}
