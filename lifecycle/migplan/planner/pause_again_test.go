// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// After a boot the MIG mode of an H100 is off, and its GPUNode still requests the former layout, which the
// agent cannot apply while the clients have the GPU open. The next change pauses them, although it does not
// change the spec. Guards invariant 8 of the design.
func TestClientsArePausedForLayoutThatIsRequestedAlready(t *testing.T) {
	c := newPausingCluster(t, 0, false)
	gpuNode := &v1alpha1.GPUNode{}
	c.getObject(gpuNode, "n1")
	gpuNode.Spec.GPUs = []v1alpha1.DesiredGPU{{
		UUID: gpuNode.Status.GPUs[0].UUID, MIGEnabled: true, MayReset: true,
		Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 4}},
	}}
	if err := c.client.Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	gpuNode.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInUse, Message: "DCGM",
	}}
	if err := c.client.Status().Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	c.run()
	var node corev1.Node
	c.getObject(&node, "n1")
	c.getObject(gpuNode, "n1")
	if gpuNode.Status.GPUs[0].MIG.Current != v1alpha1.MIGModeEnabled || gpuNode.Generation != 1 {
		t.Errorf("%+v in generation %d", gpuNode.Status.GPUs[0].MIG, gpuNode.Generation)
	}
	if repartitioningTaint(&node) != nil || node.Labels[labelDCGM] != "true" || node.Labels[labelPlugin] != "true" {
		t.Errorf("%v %v", node.Spec.Taints, node.Labels)
	}
}
