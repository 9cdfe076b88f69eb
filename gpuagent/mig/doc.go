// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig is the geometry of MIG: what fits where on a board, and which
// small change makes room.
//
// Enters: a board, how its GPUs are cut and in use, and what is asked for.
// Leaves: the placement that harms later requests least, or the smallest change
// after which all that can fit does fit.
//
// It never does any I/O, and never moves what is in use. The placements, the
// identifiers and the sizes are those that NVML reports, as NVIDIA's MIG user guide
// and the tables of other projects have them; each board says where its own differ.
package mig
