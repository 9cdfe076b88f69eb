// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestStartCauses(t *testing.T) {
	const noNode = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. " +
		"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
	unscheduled := func(message string) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message},
		}}}
	}
	waiting := func(reasons ...string) corev1.Pod {
		pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: "dgx-1"}}
		for _, reason := range reasons {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Image: "registry.example.org/x", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			})
		}
		return pod
	}
	gated := corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "mine"}}}}
	needsInstances := unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	needsInstances.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/mig-3g.20gb": resource.MustParse("1")},
	}}}
	elsewhere := unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	elsewhere.Spec.NodeSelector = map[string]string{"no": "such"}
	seen := map[startCause]bool{}
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want startCause
	}{
		"a gate":                              {gated, causeGate},
		"not seen by the scheduler":           {corev1.Pod{}, causeNoRoom},
		"a selector of no node":               {unscheduled(noNode), causeNoNode},
		"a larger node than there is":         {unscheduled("0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeNoNode},
		"full nodes":                          {unscheduled("0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."), causeNoRoom},
		"a slice that no GPU is divided into": {unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeNoRoom},
		"a cordoned node":                     {unscheduled("0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeNoRoom},
		"a node that is repartitioned":        {unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint {sluice.dev/repartitioning: }. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeNoRoom},
		"a taint of its pool's nodes":         {unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeNoRoom},
		"nodes of others with taints":         {unscheduled("0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."), causeNoNode},
		"nodes of others, Kubernetes 1.36":    {unscheduled("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."), causeNoNode},
		"with a plugin of devices":            {unscheduled("0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."), causeNoNode},
		"affinity to pods that do not exist":  {unscheduled("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."), causeNoNode},
		"a reason of a later Kubernetes":      {unscheduled("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) are blue. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."), causeNoRoom},
		"a size that no node has":             {unscheduled("0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."), causeNoNode},
		"instances that do not exist yet":     {needsInstances, causeNoInstance},
		"a claim that does not exist":         {unscheduled(`0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.`), causeMissingObject},
		"a claim that is being deleted":       {unscheduled(`0/1 nodes are available: persistentvolumeclaim "data" is being deleted. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.`), causeMissingObject},
		"a claim without a volume":            {unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."), causeMissingObject},
		"a selector of no node, with taints":  {elsewhere, causeNoNode},
		"an image that does not exist":        {waiting("ContainerCreating", "ImagePullBackOff"), causeImage},
		"a Secret that does not exist":        {waiting("CreateContainerConfigError"), causeMissingObject},
		"containers that are created":         {waiting("ContainerCreating"), causeStarting},
		"a kubelet that does not report":      {waiting(), causeStarting},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []corev1.Node{{}}
			if name == "a selector of no node, with taints" || name == "a taint of its pool's nodes" || name == "a node that is repartitioned" {
				nodes[0].Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
			}
			got, _, image := startCauseOf(&tc.pod, nodes)
			if _, known := isOwnFault[got]; got != tc.want || !known || (image != "") != (got == causeImage) {
				t.Errorf("cause %s, image %q; want %s", got, image, tc.want)
			}
			seen[tc.want] = true
		})
	}
	for cause := range isOwnFault {
		if !seen[cause] {
			t.Errorf("no case for %s", cause)
		}
	}
}
