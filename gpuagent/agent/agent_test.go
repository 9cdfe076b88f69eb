// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/clustertest"
)

// A spec is applied, the plugin reloaded and the status written. An instance in use stays until its pod
// ends; idle ones make room.
func TestSpecIsApplied(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	stop := w.startAgent()
	first, second := w.gpuUUID(0), w.gpuUUID(1)

	w.setSpec(parseLayout(first, "3g.20gb@0 2g.10gb@4"), parseLayout(second, "1g.5gb@0"))
	node := w.waitForStatus("partitioned", isPartitioned("3g.20gb@0 2g.10gb@4", "1g.5gb@0"))
	if s := node.Status; s.DriverVersion == "" || s.Slices != "1g.5gb 0/1, 2g.10gb 0/1, 3g.20gb 0/1" || s.GPUs[0].Model == "" ||
		len(s.Pods) > 0 || s.SampledAt == nil {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{
		{v1alpha1.ConditionReady, "True"},
		{v1alpha1.ConditionResetRequired, "False"},
		{v1alpha1.ConditionNoPermission, "False"},
		{v1alpha1.ConditionGPULost, "False"},
	} {
		if err := hasCondition(c.kind, c.status, v1alpha1.ReasonReady)(node); err != nil {
			t.Error(err)
		}
	}
	w.waitForSignals(0)

	waitForEvent := func(count int32) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			var events eventsv1.EventList
			if err := w.admin.List(t.Context(), &events, client.InNamespace("default")); err != nil {
				return err
			}
			for i := range events.Items {
				e := &events.Items[i]
				if e.Regarding.Kind == "Node" && e.Regarding.Name == w.name && e.Reason == "MIGLayoutApplied" &&
					ptr.Deref(e.Series, eventsv1.EventSeries{Count: 1}).Count == count {
					return nil
				}
			}
			return fmt.Errorf("no event on the node with count %d among %d", count, len(events.Items))
		})
	}
	waitForEvent(1)

	held := node.Status.GPUs[0].Instances[0].UUID
	w.kubelet.assign("train-0", held)
	w.setSpec(parseLayout(first, "1g.5gb@0 2g.10gb@4"), parseLayout(second, "1g.5gb@0 1g.5gb@1"))
	node = w.waitForStatus("in use", hasCondition(v1alpha1.ConditionLayoutApplied, metav1.ConditionFalse, v1alpha1.ReasonInUse))
	if node.Status.ObservedGeneration != node.Generation {
		t.Errorf("found impossible, but not observed: %d of %d", node.Status.ObservedGeneration, node.Generation)
	}
	instance := node.Status.GPUs[0].Instances[0]
	if instance.UUID != held || instance.State != v1alpha1.InstanceReclaiming || instance.Pod == nil || instance.Pod.Name != "train-0" {
		t.Errorf("%+v", instance)
	}
	if pods := node.Status.Pods; len(pods) != 1 || pods[0].Name != "train-0" || !slices.Equal(pods[0].Devices, []string{held}) {
		t.Errorf("wrong pods: %+v", pods)
	}

	snapshot, err := agent.FetchStatus(t.Context(), w.newConfig().Socket())
	if err != nil || len(snapshot.GPUs) != 2 || snapshot.GPUs[0].Instances[0].Pod != "default/train-0" || len(snapshot.Problems) != 1 {
		t.Errorf("%+v, %v", snapshot, err)
	}

	before := w.hangups.Load()
	w.kubelet.assign("other", "MIG-00000000-0000-0000-0000-000000000000")
	w.waitForStatus("free", isPartitioned("1g.5gb@0 2g.10gb@4", "1g.5gb@0 1g.5gb@1"))
	w.waitForSignals(before)
	waitForEvent(2)
	stop()
	if _, err := agent.FetchStatus(t.Context(), w.newConfig().Socket()); err == nil {
		t.Error("the stopped agent still serves its socket")
	}
	direct, err := agent.ObserveDirect(t.Context(), w.newConfig(), w.gpus.Open())
	if err != nil || len(direct.GPUs) != 2 || len(direct.GPUs[1].Instances) != 2 || direct.GPUs[1].Instances[0].Foreign {
		t.Errorf("without an agent: %+v, %v", direct, err)
	}
}

// At rest the agent writes nothing to the API server or the driver and does not reload the plugin, also
// after a restart.
func TestNoWritesWhenIdle(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	stop := w.startAgent()
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	w.waitForSignals(0)
	var writes atomic.Int64
	passes := make(chan struct{}, 1000)
	watch := func(call simulator.Call) {
		switch call.Method {
		case "CreateInstance", "DestroyInstance", "CreateComputeInstance", "DestroyComputeInstance", "SetMIGMode", "Reset":
			writes.Add(1)
		case "GPUs":
			passes <- struct{}{}
		}
	}
	w.hook.Store(&watch)
	for range 5 { // a condition may still be due
		<-passes
	}
	before, signals := w.getGPUNode().ResourceVersion, w.hangups.Load()
	for range 20 {
		<-passes
	}
	stop()
	w.startAgent()
	for range 20 {
		<-passes
	}
	w.hook.Store(nil)
	if after := w.getGPUNode().ResourceVersion; after != before || w.hangups.Load() != signals || writes.Load() != 0 {
		t.Errorf("resource version %s, then %s; %d signals, then %d; %d writes to the driver", before, after, signals, w.hangups.Load(),
			writes.Load())
	}
}

// After an agent that ends during a change, the next one completes it from the journal.
func TestRestartDuringChange(t *testing.T) {
	for _, call := range []string{"CreateInstance", "CreateComputeInstance", "DestroyInstance"} {
		t.Run(call, func(t *testing.T) {
			w := newTestNode(t)
			w.startDevicePlugin()
			cancel, stop := w.startCancelableAgent()
			uuid := w.gpuUUID(0)
			w.setSpec(parseLayout(uuid, "3g.20gb@0"))
			w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
			reached, leave := make(chan struct{}, 1), make(chan struct{})
			hook := func(c simulator.Call) {
				if c.Method == call {
					w.hook.Store(nil)
					reached <- struct{}{}
					<-leave
				}
			}
			w.hook.Store(&hook)
			w.setSpec(parseLayout(uuid, "2g.10gb@0 2g.10gb@2"))
			<-reached
			cancel()
			close(leave) // the driver finishes its call
			stop()
			w.startAgent()
			w.waitForStatus("partitioned", isPartitioned("2g.10gb@0 2g.10gb@2", ""))
		})
	}
}

// A driver that stops answering in the middle of a change is no failure of the layout, which the
// planner would undo: the agent completes the change when the driver answers again. Guards
// invariants 7 and 8 of the design.
func TestDriverStopsDuringChange(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	w.startAgent()
	uuid := w.gpuUUID(0)
	w.setSpec(parseLayout(uuid, "3g.20gb@0"))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	reached, leave := make(chan struct{}, 1), make(chan struct{})
	hook := func(c simulator.Call) {
		if c.Method == "CreateInstance" {
			w.hook.Store(nil)
			reached <- struct{}{}
			<-leave
		}
	}
	w.hook.Store(&hook)
	w.setSpec(parseLayout(uuid, "2g.10gb@0 2g.10gb@2"))
	<-reached
	w.gpus.Unload(nvml.ErrDriverNotLoaded)
	close(leave)
	node := w.waitForStatus("no driver", hasCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDriverNotLoaded))
	if c := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionLayoutApplied); c != nil && c.Status == metav1.ConditionFalse &&
		c.ObservedGeneration == node.Generation {
		t.Errorf("the layout is reported as not applied: %s: %s", c.Reason, c.Message)
	}
	w.gpus.Load()
	w.waitForStatus("completed", isPartitioned("2g.10gb@0 2g.10gb@2", ""))
}

// A reverted change is not completed, neither by the agent that began it nor by the next one: the node
// accepts pods again, and the scheduler counts on the former instances.
func TestRevertedSpec(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			w := newTestNode(t)
			w.startDevicePlugin()
			cancel, stop := w.startCancelableAgent()
			uuid := w.gpuUUID(0)
			w.setSpec(parseLayout(uuid, "1g.5gb@0 1g.5gb@1 1g.5gb@6"))
			node := w.waitForStatus("partitioned", isPartitioned("1g.5gb@0 1g.5gb@1 1g.5gb@6", ""))
			stay := []string{node.Status.GPUs[0].Instances[1].UUID, node.Status.GPUs[0].Instances[2].UUID}
			reached, leave := make(chan struct{}, 1), make(chan struct{})
			hook := func(c simulator.Call) {
				if c.Method == "DestroyComputeInstance" {
					w.hook.Store(nil)
					reached <- struct{}{}
					<-leave
				}
			}
			w.hook.Store(&hook)
			w.setSpec(parseLayout(uuid, "2g.10gb@0"))
			<-reached
			if restarted {
				cancel()
				close(leave) // the driver finishes its call
				stop()
			}
			w.setSpec(parseLayout(uuid, "1g.5gb@0 1g.5gb@1 1g.5gb@6"))
			if restarted {
				w.startAgent()
			} else {
				w.waitForLog("The GPUNode's spec changed")
				close(leave)
			}
			node = w.waitForStatus("reverted", isPartitioned("1g.5gb@0 1g.5gb@1 1g.5gb@6", ""))
			if got := []string{node.Status.GPUs[0].Instances[1].UUID, node.Status.GPUs[0].Instances[2].UUID}; !slices.Equal(got, stay) {
				t.Errorf("devices %v, want the former %v", got, stay)
			}
		})
	}
}

func TestDriverUnloadAndReload(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	w.gpus.Unload(nvml.ErrDriverNotLoaded)
	w.startAgent()
	w.setSpec(parseLayout("GPU-00000000-0000-0000-0000-000000000000", "3g.20gb@0"))
	w.waitForStatus("no driver", hasCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDriverNotLoaded))
	w.gpus.Load()
	w.waitForStatus("driver", hasCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	w.gpus.Unload(nvml.ErrLibraryNotFound)
	node := w.waitForStatus("no library", hasCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonLibraryNotFound))
	if len(node.Status.GPUs) != 2 {
		t.Errorf("the last known state was removed: %+v", node.Status.GPUs)
	}
	w.gpus.Load()
	w.waitForStatus("driver", hasCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
}

// After an upgrade of the driver within one boot, which removes all instances, the layout is made again and
// the device plugin told, by the agent that ran before and by the next one. Guards invariant 8 of the design.
func TestLayoutAfterDriverUpgrade(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	w.writeFile("sys/module/nvidia/refcnt", "1")
	stop := w.startAgent()
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	for _, restarted := range []bool{false, true} {
		w.waitForSignals(0)
		signals := w.hangups.Load()
		if restarted {
			stop()
		}
		w.gpus.Unload(nvml.ErrDriverNotLoaded)
		w.writeFile("sys/module/next/refcnt", "1")
		if err := errors.Join(os.RemoveAll(filepath.Join(w.dir, "sys/module/nvidia")),
			os.Rename(filepath.Join(w.dir, "sys/module/next"), filepath.Join(w.dir, "sys/module/nvidia"))); err != nil {
			t.Fatal(err)
		}
		w.gpus.Boot()
		w.gpus.Load()
		if restarted {
			w.startAgent()
		}
		w.waitForSignals(signals)
		w.waitForStatus("partitioned again", isPartitioned("3g.20gb@0", ""))
	}
}

func TestLostGPU(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	w.startAgent()
	first, second := w.gpuUUID(0), w.gpuUUID(1)
	w.setSpec(parseLayout(first, "3g.20gb@0"), parseLayout(second, ""))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	w.waitForSignals(0)
	signals := w.hangups.Load()
	if err := w.gpus.Lose(string(first)); err != nil {
		t.Fatal(err)
	}
	node := w.waitForStatus("lost", hasCondition(v1alpha1.ConditionGPULost, metav1.ConditionTrue, v1alpha1.ConditionGPULost))
	if node.Status.GPUs[0].Health != v1alpha1.GPULost || node.Status.GPUs[1].Health != v1alpha1.GPUHealthy {
		t.Errorf("%+v", node.Status.GPUs)
	}
	if w.hangups.Load() != signals {
		t.Error("the plugin was reloaded beside a lost GPU")
	}
	w.setSpec(parseLayout(first, "3g.20gb@0"), parseLayout(second, "2g.10gb@0"))
	w.waitForStatus("the other is partitioned", func(node *v1alpha1.GPUNode) error {
		if node.Status.ObservedGeneration != node.Generation || len(node.Status.GPUs[1].Instances) != 1 {
			return fmt.Errorf("%+v", node.Status.GPUs[1])
		}
		return nil
	})
}

// Beside NVIDIA's MIG manager the agent writes nothing to the driver.
func TestConflictingManager(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "mig-manager", Namespace: clustertest.Namespace(t, w.cluster),
			Labels: map[string]string{"app": "nvidia-mig-manager"},
		},
		Spec: corev1.PodSpec{
			NodeName:   w.name,
			Containers: []corev1.Container{{Name: "m", Image: "m", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}},
		},
	}
	w.create(pod)
	impostor := pod.DeepCopy()
	impostor.ObjectMeta = metav1.ObjectMeta{Name: "impostor", Namespace: pod.Namespace, Labels: pod.Labels}
	impostor.Spec.Containers[0].SecurityContext = nil
	w.create(impostor) // it stays to the end
	w.startAgent()
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	for _, kind := range []string{v1alpha1.ConditionLayoutApplied, v1alpha1.ConditionReady} {
		node := w.waitForStatus("conflict", hasCondition(kind, metav1.ConditionFalse, v1alpha1.ReasonMIGManager))
		if len(node.Status.GPUs) != 2 || len(node.Status.GPUs[0].Instances) != 0 {
			t.Errorf("%+v", node.Status.GPUs)
		}
	}
	if err := w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.waitForStatus("the manager is gone", isPartitioned("3g.20gb@0", ""))
	w.waitForStatus("the manager is gone", hasCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
}

func TestLateDevicePlugin(t *testing.T) {
	w := newTestNode(t)
	w.startAgent()
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	w.waitForStatus("no plugin", hasCondition(v1alpha1.ConditionLayoutApplied, metav1.ConditionFalse, v1alpha1.ReasonDevicePluginNotFound))
	w.startDevicePlugin()
	w.waitForStatus("reloaded", isPartitioned("3g.20gb@0", ""))
}

// While the kubelet does not answer, all devices count as in use.
func TestUnreachableKubelet(t *testing.T) {
	w := newTestNode(t)
	w.startDevicePlugin()
	w.startAgent()
	w.setSpec(parseLayout(w.gpuUUID(0), "3g.20gb@0"))
	w.waitForStatus("partitioned", isPartitioned("3g.20gb@0", ""))
	w.kubelet.setFailing(true)
	w.waitForStatus("no kubelet", hasCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKubeletUnreachable))
	generation := w.setSpec(parseLayout(w.gpuUUID(0), "1g.5gb@0"))
	w.kubelet.setFailing(false)
	node := w.waitForStatus("partitioned", isPartitioned("1g.5gb@0", ""))
	if node.Generation != generation {
		t.Errorf("generation %d", node.Generation)
	}
}

// The reporter reports a hung call while the reconciler waits for it, then the health check fails.
// Both recover when the driver answers.
func TestHungDriver(t *testing.T) {
	w := newTestNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.health = l.Addr().String()
	_ = l.Close()
	w.callTimeout = 10 * time.Second
	w.startAgent()
	healthz := func(want int) func() error {
		return func() error {
			response, err := http.Get("http://" + w.health + "/healthz?verbose")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != want {
				return fmt.Errorf("%d, want %d: %s", response.StatusCode, want, text)
			}
			return nil
		}
	}
	w.waitForStatus("ready", hasCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	clustertest.Eventually(t, healthz(http.StatusOK))

	leave := make(chan struct{})
	var once atomic.Bool
	hang := func(call simulator.Call) {
		if call.Method == "Memory" && once.CompareAndSwap(false, true) {
			<-leave
		}
	}
	w.hook.Store(&hang)
	node := w.waitForStatus("hung", hasCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDriverNotResponding))
	if len(node.Status.GPUs) != 2 {
		t.Errorf("the last known state was removed: %+v", node.Status)
	}
	clustertest.Eventually(t, healthz(http.StatusInternalServerError))
	close(leave)
	w.waitForStatus("ready", hasCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	clustertest.Eventually(t, healthz(http.StatusOK))
}
