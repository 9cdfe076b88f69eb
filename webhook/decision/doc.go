// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decision records what the webhook decides.
//
// Enters: an admission handler. Leaves: the same handler, each of whose answers
// is one structured log line and one measurement.
//
// It never changes an answer, and never logs an object: those may hold secrets.
package decision
