// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project gives each Project its namespace and the quotas in it.
//
// Enters: Projects, Departments, NodePools and Namespaces, as watched, and the
// objects that policies render for each project. Leaves: the namespace, made or
// adopted; the rendered objects in it, and the project's queues outside; then, once the quotas are counted, the
// labels that say whose it is, by which it is governed; the Project's status,
// with the condition QuotaApplied, until which GPU pods are refused, and what is
// used of the quota. GPU pods that were there before the quota are listed in the
// condition Uncounted, and what they hold is taken off what is rendered; a
// namespace in which they hold more than the limit is governed once there is
// room. When a Project is deleted, the namespace again: deleted where Sluice made
// it and it holds no volume claim, else left standing without the labels and what
// was rendered.
//
// It never deletes a namespace that it did not make, nor a volume, never takes a
// namespace because of what a label says, and counts no pods but those that the
// quotas do not: all other figures are the quotas'.
package project
