// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine describes a GPU server: what is in it, and how its GPUs are
// cut.
//
// What enters is a Machine. What leaves are the devices that NVIDIA's plugin
// would report, the labels that GPU feature discovery would write (both with MIG
// strategy "mixed"), and what a kubelet would report as capacity. Everything
// follows from the description and the node's name, so that it is the same after
// every restart. The package does no I/O, and never places an instance: where
// each one is, is said.
package machine
