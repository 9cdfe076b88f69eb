// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvml is the one seam to the driver of NVIDIA's GPUs: what Sluice asks
// of it, in Go's terms.
//
// Enters: calls on a GPU, by its UUID. Leaves: the driver's answers, and its errors
// as values of [Error]. Package driver answers with the real library, package
// simulator with boards that are harsher than the real ones; package conformance
// holds both to the same.
//
// It never decides anything, never tries again, and never hides an error.
package nvml
