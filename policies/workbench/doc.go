// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workbench tests and explains policies without a cluster.
//
// [Load] reads a folder: Policy objects, their Rego, unit tests in Rego, cases, and the projects, departments and node pools in
// which the cases take place. [Folder.RunCases] evaluates each [Case] as the cluster would, with the built-in policies, and
// [Folder.RunUnitTests] runs the unit tests. [Cluster.Decide] says what the policies make of any object, and which of them
// did what.
//
// The package reads nothing but the folder, and never writes.
package workbench
