// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house holds the tests of the house itself: who may import whom, which
// files every folder has, and how short a main is.
//
// Enters: the source tree. Leaves: nothing but test results. It never runs what
// it looks at.
package house
