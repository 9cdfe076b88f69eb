// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload says what a pod asks for.
//
// Enters: any pod or pod template. Leaves: one [Request] (type, devices, share,
// memory, MIG profile, pools, time), which policies read as input.workload; or a
// [Malformed] error whose entries each name the field, the value and what is
// allowed. The same pod always gives the same answer.
//
// A pod has its GPUs in one [Form] and for one purpose, however many ways there
// are to write it: whole GPUs or shares of them, never both, never two MIG
// profiles. Three things it cannot know, since they are the node pool's: how much
// of a GPU a MIG slice, a replica or some memory is; whether a resource named
// nvidia.com/gpu is a whole GPU, a replica that kept its name, or a MIG slice
// under the device plugin's single strategy; and what a DRA claim holds.
//
// It never does any I/O, never decides what is allowed to whom, and never reads
// what is charged (sluice.dev/gpu-milli): that is an answer, not a question.
package workload
