// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status is the command `gpuagent status`, which shows a node's GPUs.
//
// Enters: flags. Leaves: a picture on the terminal, or JSON, from the agent that runs
// on the node, or where none does from the driver itself.
//
// It never changes anything, and writes colours to terminals only.
package status
