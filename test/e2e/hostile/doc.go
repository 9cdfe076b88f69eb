// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks Sluice with the rights of its users. Each attack is one row of a table:
// what is sent, by which roles and against which scheduler, and the message that the attacker
// gets, or why nothing was gained. README.md shows how to add one, and counts them.
//
// All rows share one cluster, which the first test that needs it starts.
package hostile
