// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

const (
	labelDCGM   = "nvidia.com/gpu.deploy.dcgm"
	labelPlugin = "nvidia.com/gpu.deploy.device-plugin"
	labelNVSM   = "nvidia.com/gpu.deploy.nvsm"
)

// withPause has the clients of n1 paused for changes of the MIG mode; dcgm has the value.
func (s *testSnapshot) withPause(dcgm string) *testSnapshot {
	s.pools[0].resets, s.pools[0].pause = v1alpha1.MIGResetsWhenIdle, true
	s.nodes[0].clients = clientLabels{labelDCGM: dcgm, labelPlugin: "false", labelNVSM: ""}
	s.nodes[0].clientsPaused = s.nodes[0].clients.paused()
	return s
}

// pausedFor records since when the clients of n1 are being paused.
func (s *testSnapshot) pausedFor(d time.Duration) *testSnapshot {
	s.previousState.pausedSince = map[string]time.Time{"n1": startTime.Add(-d)}
	return s
}

// NVIDIA's GPU clients end before the MIG mode of a GPU changes, and start again in any case. Guards
// invariants 7 and 8 of the design.
func TestPauseDecisions(t *testing.T) {
	const paused = v1alpha1.GPUClientPaused
	off := func(dcgm string, bound ...boundPod) *testSnapshot {
		return newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1, bound...).withPause(dcgm)
	}
	dcgm := boundPod{uid: "dcgm", name: "gpu-operator/dcgm", client: true}
	whole := boundPod{uid: "w", name: "ns/w", instanceRequests: []instanceRequest{oneInstance("1g.5gb")}}
	write := "write n1 [3g.20gb@4]reset"
	tests := map[string]struct {
		scene *testSnapshot
		want  []string
	}{
		"active clients are paused":                                                {off("true", dcgm), []string{"pause n1"}},
		"the change waits for their pods":                                          {off(paused, dcgm), nil},
		"the change begins when they have ended":                                   {off(paused), []string{write}},
		"an administrator's values count as ended":                                 {off("false"), []string{write}},
		"the end of an upgrade of the driver, which starts them again, is awaited": {off("paused-for-driver-upgrade"), nil},
		"for a time only":                                                          {off("paused-for-driver-upgrade").pausedFor(drainTimeout), []string{"untaint n1 timed-out"}},
		"an upgrade while Sluice pauses them changes nothing":                      {off(paused + "_paused-for-driver-upgrade"), []string{write}},
		"without a change of the mode they stay": {
			newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1, dcgm).withPause("true"),
			[]string{"write n1 [3g.20gb@4]"},
		},
		"the pod of another DaemonSet stays": {off(paused, boundPod{uid: "x", name: "ns/x"}), []string{write}},
		"a client that does not end ends the change": {
			off(paused, dcgm).pausedFor(drainTimeout), []string{"untaint n1 timed-out"},
		},
		"so does a program that sets the labels back": {
			off("true", dcgm).pausedFor(drainTimeout), []string{"untaint n1 timed-out"},
		},
		"a client may end late": {off(paused, dcgm).pausedFor(drainTimeout - time.Second), nil},
		"a pod that the kubelet has not accepted keeps the device plugin": {off("true", whole), nil},
		"but for two minutes only": {
			func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb").withTaint("n1", settleTimeout, 1, whole).withPause("true")
			}(), []string{"untaint n1 timed-out"},
		},
		"an accepted pod does not": {
			off("true", boundPod{uid: "w", started: true, instanceRequests: whole.instanceRequests}), []string{"pause n1"},
		},
		"a pod in its binding cycle ends the change": {
			off("true", boundPod{uid: "w", nominated: true, instanceRequests: whole.instanceRequests}), []string{"untaint n1 abandoned"},
		},
		"a node with such a pod is not tainted": {
			newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb").
				withPendingPod("q", "7g.40gb", func(w *podRequest) { w.nominated = "n1" }).withPause("true"), nil,
		},
		"they start when the agent has reported": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100: 3g.20gb@0").withTaint("n1", 10*time.Second, 1).withPause(paused),
			[]string{"resume n1"},
		},
		"they start when the agent has failed": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100 off").updateGPUNode("n1", setLayoutNotApplied).
				withTaint("n1", 10*time.Second, 1).withPause(paused),
			[]string{"resume n1"},
		},
		"a new device plugin would offer devices that containers cannot open": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100: 3g.20gb@0").updateGPUNode("n1", setDeviceNodesMissing).
				withTaint("n1", 10*time.Second, 1).withPause(paused),
			nil,
		},
		"but for two minutes only, since they also report metrics": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100: 3g.20gb@0").updateGPUNode("n1", setDeviceNodesMissing).
				withTaint("n1", taintMaxAge+agentTimeout, 1).withPause(paused),
			[]string{"resume n1"},
		},
		"they stay paused while the agent works": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100 off").
				updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 }).withTaint("n1", 10*time.Second, 1).withPause(paused),
			nil,
		},
		"they start when the agent does not answer": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100 off").
				updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 }).
				withTaint("n1", taintMaxAge+agentTimeout, 1).withPause(paused),
			[]string{"resume n1"},
		},
		"they start when the taint was removed by hand": {
			newTestSnapshot(t, []string{"a100 off"}).withPause(paused), []string{"resume n1"},
		},
		"a device plugin that the agent has not reached yet": {
			withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100: 3g.20gb@0").updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
				setLayoutNotApplied(o)
				o.Status.Conditions[0].Reason = v1alpha1.ReasonDevicePluginNotFound
			}).withTaint("n1", 10*time.Second, 1).withPause("true"),
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.scene.decideActions()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Values that others set are kept exactly, also those of a driver upgrade at the same time.
func TestClientLabelsOfOthersStay(t *testing.T) {
	const upgrade = "paused-for-driver-upgrade"
	for value, want := range map[string]struct{ paused, resumed string }{
		"true": {v1alpha1.GPUClientPaused, "true"}, "false": {"false", "false"}, "": {"", ""}, "True": {"True", "True"},
		"paused-for-mig-change": {"paused-for-mig-change", "paused-for-mig-change"}, upgrade: {upgrade, upgrade},
		v1alpha1.GPUClientPaused + "_" + upgrade: {v1alpha1.GPUClientPaused + "_" + upgrade, upgrade},
		v1alpha1.GPUClientPaused + "x":           {v1alpha1.GPUClientPaused + "x", v1alpha1.GPUClientPaused + "x"},
	} {
		labels := clientLabels{labelDCGM: value}
		maps.Copy(labels, labels.pausePatch())
		if labels[labelDCGM] != want.paused {
			t.Errorf("%q is paused as %q, want %q", value, labels[labelDCGM], want.paused)
		}
		maps.Copy(labels, labels.resumePatch())
		if labels[labelDCGM] != want.resumed {
			t.Errorf("%q is resumed as %q, want %q", value, labels[labelDCGM], want.resumed)
		}
	}
}

// pausingCluster is a cluster with a node whose GPU has to enter MIG mode, and a pod of DCGM.
type pausingCluster struct {
	*fakeCluster
	// killedAt is the number of the write at which lifecycle is killed, before or after its effect.
	killedAt, writes int
	afterEffect      bool
}

var errKilled = errors.New("killed")

func newPausingCluster(t *testing.T, killedAt int, afterEffect bool) *pausingCluster {
	pool := newMIGPool()
	pool.Spec.MIG = &v1alpha1.MIGSpec{Resets: v1alpha1.MIGResetsWhenIdle, Pause: true}
	node := newMIGNode(func(n *corev1.Node) {
		maps.Copy(n.Labels, map[string]string{labelDCGM: "true", labelPlugin: "true", labelNVSM: "false", "nvidia.com/gpu.product": "A100"})
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("9")
	})
	c := &pausingCluster{fakeCluster: newFakeCluster(t, pool, node, createGPUNode(t, "a100 off")), killedAt: killedAt, afterEffect: afterEffect}
	c.createPendingPod("3g.20gb")
	(*c.pending)[0].constraints.selector = map[string]string{"nvidia.com/gpu.product": "A100"}
	c.Client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake client implements it
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			c.writes++
			if c.writes == c.killedAt && !c.afterEffect {
				return errKilled
			}
			before := &v1alpha1.GPUNode{}
			_ = w.Get(ctx, client.ObjectKeyFromObject(o), before)
			if err := w.Patch(ctx, o, patch, opts...); err != nil {
				return err
			}
			// as an API server does
			if gpuNode, ok := o.(*v1alpha1.GPUNode); ok && !equality.Semantic.DeepEqual(before.Spec, gpuNode.Spec) {
				gpuNode.Generation++
				if err := w.Update(ctx, gpuNode); err != nil {
					return err
				}
			}
			if c.writes == c.killedAt {
				return errKilled
			}
			return nil
		},
	})
	return c
}

// run runs lifecycle, the DaemonSet controller, GPU feature discovery and the agent until nothing is left
// to do.
func (c *pausingCluster) run() {
	c.Helper()
	for range 60 {
		c.time = c.time.Add(time.Second)
		if _, err := c.Reconcile(c.Context(), planRequest); errors.Is(err, errKilled) {
			c.initialize() // another process
			c.state = planState{}
		} else if err != nil {
			c.Fatal(err)
		}
		c.runNode()
	}
}

func (c *pausingCluster) runNode() {
	c.Helper()
	var node corev1.Node
	c.getObject(&node, "n1")
	pod := newPendingPodObject(func(p *corev1.Pod) {
		p.Name, p.UID, p.Spec.NodeName, p.Spec.NodeSelector = "dcgm", "dcgm", "n1", map[string]string{labelDCGM: "true"}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "dcgm", UID: "d", Controller: ptr.To(true)}}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	update := func(change func()) {
		change()
		if err := c.client.Update(c.Context(), &node); err != nil {
			c.Fatal(err)
		}
	}
	running := c.client.Get(c.Context(), client.ObjectKeyFromObject(pod), pod.DeepCopy()) == nil
	switch active := node.Labels[labelDCGM] == "true"; {
	case active && !running:
		pod.ResourceVersion = ""
		if err := c.client.Create(c.Context(), pod); err != nil {
			c.Fatal(err)
		}
		update(func() { node.Labels["nvidia.com/gpu.product"] = "A100" })
		return
	case !active && running:
		if err := c.client.Delete(c.Context(), pod); err != nil {
			c.Fatal(err)
		}
		update(func() { delete(node.Labels, "nvidia.com/gpu.product") })
		return
	}
	gpuNode := &v1alpha1.GPUNode{}
	c.getObject(gpuNode, "n1")
	gpuNode.Status.SampledAt = &metav1.Time{Time: c.time}
	retried := len(gpuNode.Status.Conditions) > 0 && !running
	if gpuNode.Status.ObservedGeneration != gpuNode.Generation || retried {
		gpuNode.Status.Conditions = nil
		gpuNode.Status.ObservedGeneration = gpuNode.Generation
		gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{newObservedGPU(c, "n1", 0, "a100: 3g.20gb@4")}
		if running {
			c.Error("the MIG mode changes while DCGM runs")
		}
	}
	if err := c.client.Status().Update(c.Context(), gpuNode); err != nil {
		c.Fatal(err)
	}
	if gpuNode.Generation > 1 && node.Labels[labelPlugin] == "true" {
		node.Status.Allocatable["nvidia.com/mig-3g.20gb"] = resource.MustParse("1")
		if err := c.client.Status().Update(c.Context(), &node); err != nil {
			c.Fatal(err)
		}
		*c.pending = nil
	}
}

// Lifecycle may be killed at any of its writes: the labels come back as they were, the taint is removed,
// and the change is made. Guards invariant 8 of the design.
func TestLabelsComeBackAfterAnyCrash(t *testing.T) {
	for killedAt := 0; ; killedAt++ {
		done := false
		for _, afterEffect := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, after its effect %v", killedAt, afterEffect), func(t *testing.T) {
				c := newPausingCluster(t, killedAt, afterEffect)
				var before, after corev1.Node
				c.getObject(&before, "n1")
				c.run()
				c.getObject(&after, "n1")
				if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
					t.Errorf("labels: -want +got\n%s", diff)
				}
				if repartitioningTaint(&after) != nil {
					t.Error("the node stays tainted")
				}
				gpuNode := &v1alpha1.GPUNode{}
				c.getObject(gpuNode, "n1")
				if gpuNode.Status.GPUs[0].MIG.Current != v1alpha1.MIGModeEnabled {
					t.Error("the MIG mode was not changed")
				}
				done = killedAt > c.writes
			})
		}
		if done || t.Failed() {
			if killedAt < 6 {
				t.Errorf("only %d writes", killedAt)
			}
			return
		}
	}
}

// A pool that is gone, or a node without the taint, leaves no client paused.
func TestOrphansAreResumed(t *testing.T) {
	pool := newMIGPool()
	pool.Spec.Sharing = v1alpha1.SharingNone
	g := newFakeCluster(t, pool, newMIGNode(func(n *corev1.Node) { n.Labels[labelDCGM] = v1alpha1.GPUClientPaused }))
	g.expectWrites("orphans", g.reconcileAfter(0), "patch *v1.Node n1")
	g.expectWrites("no further writes", g.reconcileAfter(time.Second))
	var node corev1.Node
	g.getObject(&node, "n1")
	if node.Labels[labelDCGM] != "true" {
		t.Errorf("%v", node.Labels)
	}
}

// Who held the GPU stays known after the former layout was restored.
func TestHolderIsReportedAfterRollback(t *testing.T) {
	s := withSpecApplied(newTestSnapshot(t, []string{"a100 off"}), "a100 off").withPendingPod("p", "3g.20gb").
		updateGPUNode("n1", setLayoutNotApplied).withTaint("n1", 10*time.Second, 1).withPause("false")
	failed := decide(&s.snapshot, startTime)
	s.previousState = failed.nextState
	s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Generation, o.Status.ObservedGeneration = 3, 3
		o.Spec.GPUs, o.Status.Conditions = failed.actions[0].spec, nil
	})
	restored := decide(&s.snapshot, startTime)
	const want = "its agent could not apply the layout and restored the former one: DriverError: create: insufficient resources"
	if a := restored.actions[0]; a.verb != removeTaint || a.outcome != outcomeFailed || a.reason != want {
		t.Errorf("%s: %s", a.describe(), a.reason)
	}
	s.previousState, s.nodes[0].taint = restored.nextState, nil
	after := decide(&s.snapshot, startTime)
	if c := after.conditions(nil)[0]; c.Reason != ReasonAgentFailed {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// A client label that another program removes meanwhile stays removed: with its former value it would have to
// be paused, which the API server refuses, and the pass would fail.
func TestRemovedClientLabelStaysRemoved(t *testing.T) {
	const product = "nvidia.com/gpu.product"
	labels := labelsBeforePause{}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{labelDCGM: "true", labelPlugin: "true", product: "A100"}}}
	node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintRepartitioning}}
	labels.restore(node)
	node = node.DeepCopy()
	node.Labels = map[string]string{labelPlugin: v1alpha1.GPUClientPaused}
	if diff := cmp.Diff(map[string]string{labelPlugin: v1alpha1.GPUClientPaused, product: "A100"}, labels.restore(node).Labels); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
