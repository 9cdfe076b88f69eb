// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package occupancy tells which pod has which of a node's GPUs and MIG devices, and
// to which pod a process belongs.
//
// Enters: the kubelet's PodResources, the pods that are bound to the node, the
// driver's list of instances, and /proc/<pid>/cgroup. Leaves: the holder of each
// device, as package partition wants it before it takes something away.
//
// It fails closed: what cannot be read is an error, and counts as in use. A pod that
// is bound to the node and that the kubelet has given nothing yet holds all that it
// might be given. It never writes anything.
package devices
