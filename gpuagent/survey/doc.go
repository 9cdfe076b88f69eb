// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package survey puts together what is to be seen of a node's GPUs: how they are cut,
// how much of them is used, by which processes, and of which pods those are.
//
// Enters: the driver, the GPUs as package partition observed them, and who has what by
// package occupancy. Leaves: a [picture.Node], from which metrics and the terminal's
// picture are made.
//
// It never decides anything by what it sees: what cannot be read is left out.
package survey
