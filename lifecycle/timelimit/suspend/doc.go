// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stopping ends root workloads, each by the verb of its kind, and lets
// them be started again.
//
// Enters: a [Target], the very object that is meant, and until when it is to
// stay stopped. Leaves: one patch on that object with the verb and the mark
// sluice.dev/stopped-until, or an error that says whether it is gone, forbidden,
// changed meanwhile, or of a kind that cannot be stopped. What the kinds are is
// data, in package kinds.
//
// It never deletes a pod that its controller would replace, never touches another object that took a
// name, never starts a workload, and decides nothing: neither when nor why.
package suspend
