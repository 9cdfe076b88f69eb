// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package threshold records that a project uses most of what it may have.
//
// Enters: Projects, whose status has their limits and what is allocated. Leaves: a
// condition that tells it, and with it a Notice to the project's people: once, until
// the use has fallen well below the threshold again.
//
// It never sends anything and bounds nothing.
package threshold
