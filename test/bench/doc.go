// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures Sluice against what others have made.
//
// Enters: the same policies and the same admission reviews for both. Leaves:
// that both answer the same, and how long each takes, as benchmarks. It measures
// no cluster and no network, and nothing imports it: it is a module of its own,
// so that what it is measured against never reaches the product.
package bench
