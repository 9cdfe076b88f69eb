// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clocks shows how long workloads have run and when they end, as of an
// instant.
//
// Enters: WorkloadClocks and the present instant of policy time. Leaves: a row for
// each, what ends soonest first, as a table or as JSON.
//
// It needs no right beyond reading the clocks of one namespace, and never asks
// what time it is.
package clocks
