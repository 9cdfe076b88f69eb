// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
	"sluice.dev/policies/facts"
)

// Charge is what a pod that asks for this would be charged in the pool. What
// cannot be read or priced counts as whole GPUs, which never lets more in than
// there is.
func Charge(request workload.Request, pool *facts.Pool) workload.Milli {
	devices := workload.Milli(max(1, request.Devices))
	switch request.Form {
	case workload.FormShare:
		return devices * request.Share
	case workload.FormMIG:
		return devices * slicePrice(request, pool)
	case workload.FormMemory:
		return devices * memoryPrice(request.MemoryMiB, pool)
	case workload.FormReplica:
		return devices * replicaPrice(request, pool)
	default:
		return max(devices*1000, request.GPUs)
	}
}

// slicePrice is the highest among the pool's boards, as the pod's admission
// would have it.
func slicePrice(request workload.Request, pool *facts.Pool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Boards {
		for _, profile := range board.Profiles {
			if profile.Name == request.MIGProfile {
				price = max(price, profile.Price)
			}
		}
	}
	return orWhole(price)
}

// memoryPrice is that part of the smallest board, rounded up.
func memoryPrice(memoryMiB int64, pool *facts.Pool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Boards {
		if board.MemoryMiB > 0 {
			price = max(price, workload.Milli((memoryMiB*1000+board.MemoryMiB-1)/board.MemoryMiB))
		}
	}
	return min(orWhole(price), 1000)
}

// replicaPrice is a GPU divided by how many replicas are made of it.
func replicaPrice(request workload.Request, pool *facts.Pool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Boards {
		if board.Replicas > 1 && request.Resources.Of(board.ReplicaResource) > 0 {
			price = max(price, workload.Milli(1000/board.Replicas))
		}
	}
	return orWhole(price)
}

func orWhole(price workload.Milli) workload.Milli {
	if price == 0 {
		return 1000
	}
	return price
}

// counted is what the pod already asks for in the pool's currency, which its
// quota counts.
func counted(pod *corev1.Pod, currency corev1.ResourceName) workload.Milli {
	var sum int64
	for i := range pod.Spec.Containers {
		// The webhook writes it on one regular container and nowhere else.
		amount := pod.Spec.Containers[i].Resources.Requests[currency]
		sum += amount.Value()
	}
	return workload.Milli(sum)
}
