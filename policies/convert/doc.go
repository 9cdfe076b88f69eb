// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert turns the policies of Gatekeeper, Kyverno and Run:ai into policies of Sluice.
//
// [Gatekeeper], [Kyverno] and [RunAI] take the files of a directory. They return the policies, each with cases that show
// what it decides, and an [Entry] for each object of the source: what became of it, and which parts have no counterpart.
// Nothing is dropped silently. A policy that would apply to more objects than its source is not converted. Every policy
// passes the check, and those of Gatekeeper have the same findings as their template on the examples.
//
// The package evaluates policies, but never reads or writes files or a cluster.
package convert
