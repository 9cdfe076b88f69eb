// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of what every part of Sluice agrees on.
//
// Enters and leaves: nothing; the packages below hold the objects people
// declare and Sluice keeps (v1alpha1), the durations and periods they are
// written in (period), and policy time (clock).
//
// It never imports another part of Sluice, and every other part may import it.
package api
