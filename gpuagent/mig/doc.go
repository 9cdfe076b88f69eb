// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig is the place of the geometry of MIG: what fits where. It is not
// built yet.
//
// Enters: a board, its present layout and what is asked for. Leaves: the
// smallest change that makes room. It never does any I/O.
package mig
