// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench compares Sluice with Gatekeeper: it evaluates the same policies for the
// same admission reviews with both, checks that the results agree, and benchmarks the
// time of each. It measures no cluster and no network. It is a module of its own, so that
// Gatekeeper never becomes a dependency of the product, and nothing imports it.
package bench
