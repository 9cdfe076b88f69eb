// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library chooses the driver by the agent's configuration: the one place that
// knows that there is more than one.
//
// Enters: which driver is configured. Leaves: it, with nothing loaded yet. It never
// makes a call.
package library
