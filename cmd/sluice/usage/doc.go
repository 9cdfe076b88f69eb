// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage reports who used how much of the GPUs in a month.
//
// Enters: UsageRecords. Leaves: sums by project, user, type and node pool, as a
// table, as CSV or as JSON. The sums are exact; only the table rounds.
//
// It never measures anything, and shows only what its reader may read.
package usage
