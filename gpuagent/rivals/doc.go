// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rivals tells who else cuts a node's GPUs: NVIDIA's MIG manager, or a DRA
// driver that makes MIG devices by itself. Both destroy what they do not know.
//
// Enters: the node's pods, and its processes. Leaves: the rivals, each with what to do
// about it.
//
// It never takes a user's pod for one, whatever its labels and command lines say.
//
// It never decides what becomes of them; the agent writes nothing to the driver while
// one is there.
package rivals
