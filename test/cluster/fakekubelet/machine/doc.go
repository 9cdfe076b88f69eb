// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine describes a GPU server: what is in it, and how its GPUs are cut
// when it is new.
//
// What enters is a Machine. What leaves are its GPUs for package simulator, and what
// a kubelet would report as capacity. All of it follows from the description and
// the node's name, so that it is the same each time. The package does no I/O, and
// never places an instance: where each one is, is said.
package machine
