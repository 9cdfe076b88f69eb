// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clocks keeps the WorkloadClocks: how long each workload has run, when
// its people are warned, and that it ends.
//
// Enters: the GPU pods of package gpupods, the workloads they belong to, the
// limits of their projects and departments, the samples of GPUNodes, and the
// extensions that were granted. Leaves: one WorkloadClock for each workload that
// ran, written when something changes and at no other time; Notices; the end of
// workloads, by the verb of their kind; events and marks that people see.
//
// What follows from what is seen is decided by package ending. This package
// carries it out, in an order that a crash at any point leaves right: the Notices,
// then the clock, then the workload. A clock is written by the version that was
// read, so that of two who act on the same one is told to look again.
//
// It never trusts a workload to say whose it is, never deletes a controller's pod,
// and never calls a workload stopped for pods that it has not grouped yet.
package controller
