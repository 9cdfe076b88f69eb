// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mail shows the mail that an embedded cluster sent.
//
// Enters: the folder in which its mail sink keeps each mail. Leaves: a list of them,
// or one mail as a person or a machine reads it.
//
// It never changes a mail, talks to no server, and lets nothing through to a terminal
// that acts upon it.
package mail
