// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"sluice.dev/api/v1alpha1"
)

// gap is something that the pool's scheduler or way of sharing does not do for its pods.
type gap struct {
	// reason is a reason of the condition Unsupported.
	reason string
	// message says what is missing, and what to do.
	message string
}

// gapsOf returns what the pool's way of sharing GPUs and its scheduler do not do, the most severe first of each. The
// pool's status must have its driver version.
func gapsOf(pool *v1alpha1.NodePool, observation Observation) []gap {
	return append(sharingGaps(pool, observation), cpuPodGaps(pool)...)
}

func sharingGaps(pool *v1alpha1.NodePool, observation Observation) []gap {
	var gaps []gap
	switch pool.Spec.Sharing {
	case v1alpha1.SharingMPS:
		gaps = mpsGaps(pool, observation)
	case v1alpha1.SharingTimeSlicing:
		gaps = isolationGaps(pool, "time slicing limits neither the memory nor the faults of a pod to its share", "sharing MIG or MPS")
	case v1alpha1.SharingKAI:
		gaps = isolationGaps(pool, "KAI-Scheduler limits no pod to its share of the memory by itself", "its plugin hamicore, kai-gpu-fractioning")
	case v1alpha1.SharingMIG:
		gaps = preemptionGaps(pool)
	}
	if pool.Spec.Burst == v1alpha1.BurstAllow {
		gaps = append(gaps, burstGaps(pool)...)
	}
	return gaps
}

// mpsGaps returns the gaps of MPS with NVIDIA's device plugin, which limits each client process to a
// replica's memory and compute.
func mpsGaps(pool *v1alpha1.NodePool, observation Observation) []gap {
	var gaps []gap
	if len(observation.MixedMIGNodes) > 0 {
		gaps = append(gaps, gap{
			v1alpha1.ReasonMIGStrategyMixed,
			"NVIDIA's device plugin refuses MPS with migStrategy mixed, on " + joinLimited(observation.MixedMIGNodes) +
				": set migStrategy none for these nodes, or use sharing TimeSlicing",
		})
	}
	gaps = append(gaps, gap{
		v1alpha1.ReasonMemoryPerProcess,
		"MPS limits the memory of each process, so that a pod with several processes can use several times its share: " +
			"use sharing MIG where the whole pod must be limited",
	})
	if pool.Spec.Compute != v1alpha1.ComputeStrict {
		gaps = append(gaps, gap{
			v1alpha1.ReasonIdleCompute,
			"NVIDIA's device plugin limits each process to its replica's part of the compute, also with spec.compute Fair: " +
				"use sharing TimeSlicing where pods may use idle compute",
		})
	}
	return gaps
}

// isolationGaps returns that no limit of memory is known, unless the driver limits it.
func isolationGaps(pool *v1alpha1.NodePool, missing, others string) []gap {
	if pool.UsesDriverMemoryLimits() {
		return nil
	}
	return []gap{{
		v1alpha1.ReasonMemoryIsolation,
		missing + "; the agent only reports pods that exceed it: use a driver of version 615 or newer on all nodes, which needs " +
			"cgroup v2 and a GPU without MIG mode, or " + others,
	}}
}

// preemptionGaps returns that other pods may take the room which preemption makes, unless the scheduler keeps it.
func preemptionGaps(pool *v1alpha1.NodePool) []gap {
	keepsRoom := pool.Spec.Scheduler == v1alpha1.SchedulerKube || pool.Spec.Scheduler == v1alpha1.SchedulerKueue
	if pool.Spec.Preemption == nil || !pool.Spec.PlansMIG() || keepsRoom {
		return nil
	}
	return []gap{{
		v1alpha1.ReasonRoomNotReserved,
		"only kube-scheduler keeps the room that a preemption makes for the pod that needs it; with " + string(pool.Spec.Scheduler) +
			" another pod may take it: use scheduler kube-scheduler or kueue where guarantees must hold, or expect a second preemption",
	}}
}

// burstGaps returns what a pod cannot rely on where others may exceed their share.
func burstGaps(pool *v1alpha1.NodePool) []gap {
	var gaps []gap
	if !pool.UsesDriverMemoryLimits() {
		gaps = append(gaps, gap{
			v1alpha1.ReasonBurstGuarantee,
			"while a pod exceeds its share, an allocation of a pod within its share may fail: set spec.burst to Refuse, or use a " +
				"driver of version 615 or newer on all nodes",
		})
	}
	return append(gaps,
		gap{v1alpha1.ReasonBurstWaiting, "pods do not wait for memory that another pod has; conflicts end with an eviction"},
		gap{v1alpha1.ReasonBurstSwapping, "GPU memory is not swapped to the host in a conflict"},
	)
}

// cpuPodGaps returns that pods without GPUs, which the cluster's own scheduler places, can keep pods with GPUs from the
// CPUs of the nodes: KAI-Scheduler preempts pods of its queues only (measured with 0.13.0).
func cpuPodGaps(pool *v1alpha1.NodePool) []gap {
	if pool.Spec.Scheduler != v1alpha1.SchedulerKAI || pool.Spec.CPUPods == v1alpha1.CPUPodsRefuse {
		return nil
	}
	return []gap{{
		v1alpha1.ReasonCPUPodsStay,
		"KAI-Scheduler does not preempt pods without GPUs, so that they can keep pods with GPUs from the CPUs and the memory of a node: " +
			"set spec.cpuPods to Refuse, or accept that pods with GPUs wait for their end",
	}}
}
