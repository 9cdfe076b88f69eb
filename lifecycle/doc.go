// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is the controller that keeps what people declared true.
//
// Enters: Projects, Departments, NodePools, Nodes and Namespaces, as watched, and
// the policies. Leaves: each Project's namespace with the objects that policies
// render into it, its quotas, and with its labels; the queues of projects,
// departments and node pools in the engines of the pools; the currency in which GPUs are
// counted on each node; the waking of workloads that wait outside for quota; and
// the status of Projects, Departments and NodePools. [Run] is the composition
// root; each folder below is one controller or the thinking behind one.
//
// It never chooses a node, never keeps a queue, and never deletes a namespace
// that it did not make or that holds somebody's volumes.
package lifecycle
