// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices shows who is told what and how far each message has come, and has it
// sent again, paused and resumed.
//
// Enters: the Notices of a cluster and the state of its mail, with the rights of the
// person who asks. Leaves: lists and texts for a person or a machine; and, on demand,
// a wish to send a message again, or the state of mail changed.
//
// It never sends mail itself, and needs no password: the outbox does, and decides.
package notices
