// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house tests the layout of the source tree: which packages import which,
// how large files and folders are, and where package comments stand. The tests read
// the source files and never run the code. Each rule is a function with a table of
// counterexamples.
package house
