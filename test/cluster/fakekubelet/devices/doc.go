// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices decides which container gets which device of a node: the
// kubelet's device manager as a function over its state.
//
// What enters is a State (the node's devices, and who holds which) and a pod's
// demands. What leaves is the next State, or why there is none. Encode and Decode turn what is
// held into a checkpoint and back. The package reads no clock, no file and no
// API, and never changes a State that it was given.
//
// A pod is given devices when it is admitted, and keeps exactly those until it
// is over. Its processes may outlive it: until they are gone its devices are
// given only to a pod that finds no others, and that pod must wait for them (see
// State.Blockers). So a device never has two living pods, and never processes
// of two.
package devices
