// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire hands one complete message for one recipient to a mail server.
//
// Enters: a [Config], an [Envelope], and the bytes of a message. Leaves: nothing,
// once the server has said that the message is its own; otherwise a [Failure]
// that says at which [Stage] it ended and, by its [Kind], what to do about it.
//
// The mail server is a submission server or a relay (RFC 6409, RFC 5321): this
// package looks up no MX record, tries no second host and keeps no queue.
//
// It never delivers half a message: everything is checked and signed before the
// server is dialled, and whatever goes wrong ends the connection and leaves the
// message without its final dot. It never sends a password over a connection
// without TLS, never falls back to one, and never puts a password into an error.
// It never decides whether or when to try again.
package smtp
