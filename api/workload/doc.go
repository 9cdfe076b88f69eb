// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload parses the GPU request of a pod or pod template.
//
// Parse returns a [Request] (type, devices, share, memory, MIG profile, node pools, time
// limit), which policies read as input.workload. If the pod is invalid, it returns an
// [InvalidRequest] whose entries name the field, the value and what is allowed. The same
// pod always gives the same result.
//
// A pod requests GPUs in exactly one [Form], in any of the supported notations: whole
// GPUs, shares, or one MIG profile. The Request does not contain facts that depend on
// the node pool: which share of a GPU a MIG instance, a replica or an amount of memory
// is; whether nvidia.com/gpu means a whole GPU, a replica with the same resource name,
// or a MIG instance (MIG strategy single); and the devices of a DRA claim.
//
// The package does no I/O, knows no quotas or policies, and ignores the GPU quota unit
// (sluice.dev/gpu-milli), which is a result of admission.
package workload
