// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patch finds the RFC 6902 JSON patch between two values.
//
// Enters: what a value was and what it became, as JSON was decoded. Leaves: the
// operations, in an order in which they apply, the same for the same values. What
// both share in memory is not looked at, so that after copy on write the cost is
// that of the change.
//
// It never changes a value, and never applies a patch.
package patch
