// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// A pod may hold an instance of a GPU that also has an instance of an unknown profile.
func TestUnknownProfileBesidePod(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 3g.20gb@0!q", "a100:"}).withPendingPod("p", "3g.20gb").
		updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
			o.Status.GPUs[0].Instances = append(o.Status.GPUs[0].Instances,
				v1alpha1.ObservedInstance{Profile: "1g.5gb+new", Start: 6, State: v1alpha1.InstanceIdle})
		}).
		withTaint("n1", bindSettleTime, 1, newClaim("q", oneInstance("3g.20gb")))
	if diff := cmp.Diff([]string{"write n1 1[3g.20gb@4]"}, s.decideActions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A pod that found no room is tried again when the listing of the node's pods has expired.
func TestRoomIsCheckedAgain(t *testing.T) {
	other := newPendingPodObject(func(p *corev1.Pod) {
		p.Name, p.UID, p.Spec.NodeName = "other", "other", "n1"
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ti")}}
	})
	gpuNode := createGPUNode(t, "a100:")
	gpuNode.Status.SampledAt = &metav1.Time{Time: startTime.Add(6 * time.Minute)}
	g := newFakeCluster(t, newMIGPool(), newMIGNode(), gpuNode, other)
	g.createPendingPod("3g.20gb")
	(*g.pending)[0].resources.memory = 1 << 30
	g.reconcileAfter(6 * time.Minute)
	g.time = g.time.Add(conflictRequeue)
	result, err := g.Reconcile(t.Context(), planRequest)
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > usageMaxAge {
		t.Errorf("requeue after %s, %v", result.RequeueAfter, err)
	}
}

// A pod in its binding cycle counts for nominationPeriod.
func TestClaimsExpire(t *testing.T) {
	nominated := newPendingPodObject(func(p *corev1.Pod) {
		p.Name, p.UID, p.Status.NominatedNodeName = "q", "q", "n1"
		addLimit(&p.Spec.Containers[0], "nvidia.com/mig-7g.40gb", 1)
	})
	g := newFakeCluster(t, newMIGPool(), newMIGNode(withRepartitioningTaint("1")), createGPUNode(t, "a100: 7g.40gb@0"), nominated)
	g.createPendingPod("3g.20gb")
	g.state.nominations = map[types.UID]nomination{"q": {"n1", startTime.Add(-nominationPeriod)}}
	g.expectWrites("an old nomination", g.reconcileAfter(bindSettleTime+apiTimeResolution),
		"patch *v1alpha1.GPUNode n1", "update status *v1alpha1.NodePool mig")
}

// No GPU of a node without a live agent is earmarked.
func TestEarmarkNeedsAgent(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 1g.5gb@0!"}, []string{"a100: 1g.5gb@0! 1g.5gb@1! 1g.5gb@2"}).
		withPendingPod("p", "7g.40gb", func(w *podRequest) { w.unschedulableSince = startTime.Add(-earmarkDelay) }).
		updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.SampledAt = nil })
	if diff := cmp.Diff([]string{"taint n2"}, s.decideActions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// An instance that becomes idle just after the taint may be claimed.
func TestIdleJustAfterTaint(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).
		withPendingPod("p", "3g.20gb", func(w *podRequest) { w.unschedulableSince = time.Time{} }).
		withTaint("n1", time.Second, 1)
	s.previousState.offers = map[types.UID]podOffers{}
	if o := decide(&s.snapshot, startTime).nextState.offers["p"]["n1"]; o.unclaimed {
		t.Error("the instance counts as unclaimed")
	}
}

// The taint does not stay for an agent that is gone in the middle of a reset.
func TestAgentGoneDuringReset(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100 off"}).updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Generation, o.Spec.GPUs = 3, []v1alpha1.DesiredGPU{{UUID: gpuUUID("n1", 0)}}
		o.Status.GPUs[0].MIG.Pending = v1alpha1.MIGModeEnabled
	}).withTaint("n1", time.Hour, 1)
	if diff := cmp.Diff([]string{"untaint n1 timed-out"}, s.decideActions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
