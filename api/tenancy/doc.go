// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenancy decides which namespace a project may have.
//
// Enters: a Project and the namespace of the name it wants, as it is now.
// Leaves: whether the namespace is to be made, is to be adopted or is the
// project's already, or a [Refusal] that says why not and what to do. Admission
// asks before a Project is stored, lifecycle before it touches the namespace,
// so both give the same answer in the same words.
//
// It never reads or writes the cluster.
package tenancy
