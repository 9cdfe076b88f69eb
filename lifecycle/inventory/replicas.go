// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// sharedSuffix ends a product whose replicas keep the name of whole GPUs.
const sharedSuffix = "-SHARED"

// maxReplicas is more than any device plugin makes of a GPU.
const maxReplicas = 1024

// divide says of the board how the node's device plugin divides it, where GPU
// feature discovery tells.
func divide(board *v1alpha1.Board, node *corev1.Node) {
	switch node.Labels[v1alpha1.LabelGPUSharingStrategy] {
	case "mps", "time-slicing":
	default:
		return
	}
	replicas, err := strconv.Atoi(node.Labels[v1alpha1.LabelGPUReplicas])
	if err != nil || replicas < 2 || replicas > maxReplicas {
		return
	}
	board.Replicas = int32(replicas)
	board.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPUShared)
	// The suffix is there to tell them from whole GPUs where the name does not.
	if strings.HasSuffix(node.Labels[v1alpha1.LabelGPUProduct], sharedSuffix) {
		board.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPU)
	}
}

// dividedDifferently has a remark for each product whose GPUs are not divided
// alike on all nodes; sorted.
func dividedDifferently(machines []Machine) []string {
	ways := map[string][]string{}
	for _, machine := range machines {
		for _, board := range machine.Boards {
			way := "not at all"
			if board.Replicas > 0 {
				way = fmt.Sprintf("into %d %s", board.Replicas, board.ReplicaResource)
			}
			if !slices.Contains(ways[board.Product], way) {
				ways[board.Product] = append(ways[board.Product], way)
			}
		}
	}
	var remarks []string
	for product, all := range ways {
		if len(all) > 1 {
			slices.Sort(all)
			remarks = append(remarks, fmt.Sprintf(
				"the nodes divide %s differently (%s), so that shares cannot be given there; divide it alike on all of them, or make a pool for each way",
				product, strings.Join(all, ", ")))
		}
	}
	slices.Sort(remarks)
	return remarks
}
