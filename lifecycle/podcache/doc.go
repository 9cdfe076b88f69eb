// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpupods knows the cluster's GPU pods: who runs on what, since when.
//
// Enters: the pods of all namespaces that have not ended, as the API server
// streams them. Leaves: one small [Pod] for each that asks for GPUs, by name, by
// UID, by controller, by namespace and by node, and a call for each change.
//
// Which pods those are is decided by what they ask for, never by a label: a pod
// that was there before its namespace was governed, or whose request cannot be
// read, is one of them. What only a ResourceClaim holds is not known here.
//
// A hundred thousand pods decoded are most of a gigabyte, so they never are in
// memory together: each is read into a record of a few hundred bytes as it comes
// off the wire, from the watch's initial events or, where the server has none,
// from pages of a list. What repeats (namespaces, nodes, pools, users,
// controllers) is there once.
//
// What is known stays known while the server cannot be reached, and is compared,
// not thrown away, when all is listed again: only what differs is a change.
//
// It never writes, never guesses the root workload (package roots does that), and
// never waits for those whom it tells.
package podcache
