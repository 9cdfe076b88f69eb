// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tries Sluice as its users do: `sluice up` with the binaries of
// this tree, and then kubectl's way through the API server.
//
// Enters: the source tree. Leaves: nothing but test results; what it starts it
// stops. It never reaches into a component: what it sees, a user can see.
package e2e
