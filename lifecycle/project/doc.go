// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project gives each Project its namespace.
//
// Enters: Projects, Departments and Namespaces, as watched. Leaves: the
// namespace, made or adopted, with the labels that say whose it is, written
// last; the Project's status; and, when a Project is deleted, the namespace
// again: deleted where Sluice made it and it holds no volume claim, else left
// standing without the labels.
//
// It never deletes a namespace that it did not make, nor a volume, and never
// takes a namespace because of what a label says.
package project
