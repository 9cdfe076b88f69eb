// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package message writes the mail that a Notice becomes: its subject, its text and
// HTML in the recipient's language, and its deadline as an appointment.
//
// Enters: a [Letter], which is a Notice and from whom it comes. Leaves: a [Mail], whole,
// as the bytes that go over the wire. The same Letter makes the same bytes.
//
// A mail says first what happens and when, in the recipient's zone, as an instant and
// as how long that is; then why; then how to go on, by commands that exist; then the
// facts, who gets it, and whom to ask. Every figure is the Notice's: nothing is looked
// up, so that what was sent can be made again from what was recorded.
//
// Names come from users: before anything is made of one it is one line, without control
// or bidirectional characters, of bounded length. In a command stands only a name that a
// shell takes as one word.
//
// It never reads a clock, never talks to the API server or a mail server, and decides
// neither who is written to nor whether.
package mail
