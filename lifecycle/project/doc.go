// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project gives each Project its namespace and the quotas in it.
//
// Enters: Projects, Departments, NodePools and Namespaces, as watched, and the
// objects that policies render for each project. Leaves: the namespace, made or
// adopted; the rendered objects in it; then, once the quotas are counted, the
// labels that say whose it is, by which it is governed; the Project's status,
// with the condition QuotaApplied, until which GPU pods are refused, and what is
// used of the quota. When a Project is deleted, the namespace again: deleted
// where Sluice made it and it holds no volume claim, else left standing without
// the labels and what was rendered.
//
// It never deletes a namespace that it did not make, nor a volume, never takes a
// namespace because of what a label says, and never counts pods itself: the
// figures are those of the quotas.
package project
