// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render keeps the objects that policies render for a project: its
// quotas, and whatever else of the few kinds that policies may render.
//
// Enters: a Project with its Department and node pools, and the policies in
// force. Leaves: the objects in the project's namespace, applied, kept as they
// were rendered and taken back when no policy renders them any more; and what
// policies wanted and could not have, as [Fault]s for people to read.
//
// It never writes outside of the project's namespace or another kind than those
// of its list, never takes over what somebody else made, and takes nothing back
// while any policy could not say what it renders.
package render
