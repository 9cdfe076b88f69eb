// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload parses the GPU request of a pod or pod template.
//
// Parse returns a [Request] (type, devices, share, memory, MIG profile, node pools, time
// limit), which policies read as input.workload. If the pod is invalid, it returns an
// [InvalidRequest] whose entries name the field, the value and what is allowed. The same
// pod always gives the same result.
//
// A pod requests GPUs in exactly one [Form]: whole GPUs or shares of them, and at most
// one MIG profile, in whichever of the supported notations. Some facts depend on the
// node pool and are not in the Request: the size of a MIG instance, a replica or an
// amount of memory as a share of a GPU; whether nvidia.com/gpu is a whole GPU, a replica
// with its name, or a MIG instance under the strategy single; and the content of a DRA
// claim.
//
// The package does no I/O, knows no quotas or policies, and ignores the GPU quota unit
// (sluice.dev/gpu-milli), which is a result of admission.
package workload
