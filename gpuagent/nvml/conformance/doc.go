// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance tests the guarantees of nvml.Library. [Run] takes a [Target], an
// implementation with the features that it lacks, and runs one test for each guarantee. A case for
// a missing feature is skipped with the reason and never counts as passed. On a read-only target
// the suite never calls a method that changes a GPU.
package conformance
