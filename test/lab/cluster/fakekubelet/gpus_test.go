// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

const smallestProfile nvml.ProfileID = 19 // 1g.5gb

// connectDriver connects to a node's driver, as its agent does.
func connectDriver(t *testing.T, dir, node string) nvml.Library {
	t.Helper()
	library := simulator.Dial(filepath.Join(dir, "nodes", node, "nvml.sock"))
	if err := library.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = library.Shutdown() })
	return library
}

// readGPUs returns the GPUs that the device plugin of a node would read now.
func (w *testEnv) readGPUs(node string) []devices.GPU {
	w.t.Helper()
	gpus, err := devices.ReadGPUs(connectDriver(w.t, w.cluster.Dir(), node), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return gpus
}

// makeInstance creates an instance, and returns its ID and its device.
func makeInstance(t *testing.T, library nvml.Library, gpu string, start int) (uint32, string) {
	t.Helper()
	created, err := library.CreateInstance(gpu, smallestProfile, nvml.Placement{Start: start, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	device, err := library.CreateComputeInstance(gpu, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	return created.ID, device.UUID
}

// listProcesses returns the processes in a node's /proc: the simulated ones, and the real
// one that represents the device plugin.
func listProcesses(t *testing.T, dir, node string) (simulated []int, plugin int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "nodes", node, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		switch {
		case err != nil:
		case entry.Type() == os.ModeSymlink:
			plugin = pid
		case pid > 5_000_000:
			simulated = append(simulated, pid)
		default:
			t.Errorf("process %d is neither simulated nor real", pid)
		}
	}
	return simulated, plugin
}

func sendSIGHUP(t *testing.T, dir, node string) {
	t.Helper()
	_, pid := listProcesses(t, dir, node)
	if pid == 0 {
		t.Fatal("the device plugin is missing")
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// waitForCapacity waits until the node has this number of devices.
func (w *testEnv) waitForCapacity(node, resource string, want int64) {
	w.t.Helper()
	clustertest.Eventually(w.t, func() error {
		found, err := w.client.CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		able, capacity := found.Status.Allocatable[corev1.ResourceName(resource)], found.Status.Capacity[corev1.ResourceName(resource)]
		count := found.Labels[resource+".count"]
		if want == 0 && count == "" {
			count = "0"
		}
		if able.Value() != want || capacity.Value() != want || count != strconv.FormatInt(want, 10) {
			return fmt.Errorf("node %s gives %s of %s %s, and is labeled with %q; want %d", node, able.String(),
				capacity.String(), resource, count, want)
		}
		return nil
	})
}

// An agent partitions a GPU of a running node. A pod gets the new instance, its process
// appears there, and the instance cannot be destroyed until the process has ended.
func TestRepartitionWhileRunning(t *testing.T) {
	const slice = "nvidia.com/mig-1g.5gb"
	w := newTestEnv(t)
	dir := w.cluster.Dir()
	agent, gpu := connectDriver(t, dir, emptyMIGNode), devices.GPUID(emptyMIGNode, 5)
	instance, device := makeInstance(t, agent, gpu, 6)
	w.create(newTestPod("train").onNode(emptyMIGNode).requesting(slice, "1").withAnnotation(fakekubelet.ExitDelay, longExitDelay.String()))
	w.waitForPod("train", func(p *corev1.Pod) bool {
		return findCondition(p, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable
	})
	sendSIGHUP(t, dir, emptyMIGNode)
	w.waitForCapacity(emptyMIGNode, slice, 1)
	train := w.waitForPhase("train", corev1.PodRunning)
	if diff := cmp.Diff(map[string][]string{"train/main": {device}}, w.deviceHolders(emptyMIGNode)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	found, err := agent.Processes(gpu)
	if err != nil {
		t.Fatal(err)
	}
	simulated, _ := listProcesses(t, dir, emptyMIGNode)
	if len(found) != 1 || len(simulated) != 1 || int(found[0].PID) != simulated[0] || found[0].Instance != instance ||
		found[0].MemoryMiB != 4864*9/10 {
		t.Fatalf("the driver has the processes %+v and /proc %v, want one with nine tenths of the slice", found, simulated)
	}
	of := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, "nodes", emptyMIGNode, "proc", strconv.Itoa(simulated[0]), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if cgroup := of("cgroup"); !strings.Contains(cgroup, "-pod"+strings.ReplaceAll(string(train.UID), "-", "_")+".slice/cri-containerd-") {
		t.Errorf("the control group is %s, want one of pod %s", cgroup, train.UID)
	}
	if comm := of("comm"); comm != "python3\n" {
		t.Errorf("the process is named %q", comm)
	}

	if err := agent.DestroyComputeInstance(gpu, instance, 0); !errors.Is(err, nvml.ErrInUse) {
		t.Errorf("destroying an instance in use: %v, want %v", err, nvml.ErrInUse)
	}
	w.delete("train", *metav1.NewDeleteOptions(0))
	w.waitForDeletion("train")
	if err := agent.DestroyComputeInstance(gpu, instance, 0); !errors.Is(err, nvml.ErrInUse) {
		t.Errorf("destroying an instance before its processes have ended: %v, want %v", err, nvml.ErrInUse)
	}
	w.endProcesses()
	clustertest.Eventually(t, func() error { return agent.DestroyComputeInstance(gpu, instance, 0) })
	clustertest.Eventually(t, func() error {
		if simulated, _ := listProcesses(t, dir, emptyMIGNode); len(simulated) > 0 {
			return fmt.Errorf("processes %v remain", simulated)
		}
		return nil
	})
	if err := agent.DestroyInstance(gpu, instance); err != nil {
		t.Fatal(err)
	}
	sendSIGHUP(t, dir, emptyMIGNode)
	w.waitForCapacity(emptyMIGNode, slice, 0)
}

// GPUs and processes are restored after a kill of the simulating process.
func TestGPUsSurviveRestart(t *testing.T) {
	w := newTestEnv(t)
	dir := w.cluster.Dir()
	w.createAndWaitRunning(newTestPod("slice").onNode(partitionedNode).requesting("nvidia.com/mig-3g.20gb", "2"))
	w.createAndWaitRunning(newTestPod("whole").onNode(wholeGPUNode).requestingGPUs(1).
		withAnnotation(fakekubelet.Memory, "1000").withAnnotation(fakekubelet.Utilization, "37"))
	see := func() string {
		var all strings.Builder
		for _, node := range []string{wholeGPUNode, partitionedNode} {
			library := connectDriver(t, dir, node)
			for _, gpu := range w.readGPUs(node) {
				running, err := library.Processes(gpu.UUID)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(&all, gpu, running)
			}
			simulated, _ := listProcesses(t, dir, node)
			fmt.Fprintln(&all, simulated)
		}
		return all.String()
	}
	before := see()
	if !strings.Contains(before, " 1000 ") {
		t.Errorf("no process has the requested memory:\n%s", before)
	}
	busy, err := connectDriver(t, dir, wholeGPUNode).Utilization(gpuOfPod(t, w, "whole"))
	if err != nil || busy != 37 {
		t.Errorf("the pod's GPU has a utilization of %d %% (%v), want 37", busy, err)
	}
	w.killComponent("fakekubelet")
	if diff := cmp.Diff(before, see()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// gpuOfPod returns the whole GPU of a pod.
func gpuOfPod(t *testing.T, w *testEnv, name string) string {
	t.Helper()
	held := w.deviceHolders(wholeGPUNode)[name+"/main"]
	if len(held) != 1 {
		t.Fatalf("pod %s holds %v", name, held)
	}
	return held[0]
}

// A boot keeps only the MIG mode. A stopped process removes the device plugin.
func TestBootResetsMIGLayout(t *testing.T) {
	w := newTestEnv(t)
	const name = "dgx-cold"
	dir := w.newNodeDir(name)
	node := fakekubelet.DGXA100Balanced(name, "dgx")
	bootID := func() string {
		raw, err := os.ReadFile(filepath.Join(dir, "nodes", name, "proc", "sys", "kernel", "random", "boot_id"))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	stop := w.runKubelet(dir, node)
	w.waitForCapacity(name, "nvidia.com/mig-1g.5gb", 16)
	stop()
	if _, pid := listProcesses(t, dir, name); pid != 0 {
		t.Errorf("process %d remains as the device plugin", pid)
	}
	first := bootID()
	stop = w.runKubelet(dir, node)
	w.waitForCapacity(name, "nvidia.com/mig-1g.5gb", 16)
	if bootID() != first {
		t.Error("a restart counts as a boot")
	}
	stop()

	if err := os.Remove(filepath.Join(dir, "nodes", name, "kubelet_internal_checkpoint")); err != nil {
		t.Fatal(err)
	}
	defer w.runKubelet(dir, node)()
	w.waitForCapacity(name, "nvidia.com/mig-1g.5gb", 0)
	gpus, err := devices.ReadGPUs(connectDriver(t, dir, name), 0)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(gpus, func(g devices.GPU) bool { return !g.Partitioned || len(g.Instances) > 0 }) || len(gpus) != 8 {
		t.Errorf("after a boot the GPUs are %+v, want them empty, in MIG mode", gpus)
	}
	if bootID() == first {
		t.Error("after a boot the boot ID is unchanged")
	}
}
