// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smtp submits one complete message for one recipient to a mail server.
//
// A [Sender] takes an [Envelope] and the bytes of a message. It returns nil once the
// server has accepted the message, and otherwise a [Failure] with the [Stage] of the
// failure and a [FailureKind] that says what to do. The server is a submission server
// or a relay (RFC 6409, RFC 5321): the package looks up no MX record, tries no second
// host, keeps no queue, and never decides when to retry.
//
// It never delivers part of a message: the message is checked and signed before
// dialing, and after an error the connection closes without the final dot. It never
// sends a password without TLS, never falls back to plaintext, and never puts a
// password into an error.
//
// The commands are those of go-smtp's Client. Three parts are our own, each for tests
// that go-smtp does not pass:
//   - requestStartTLS runs the plaintext phase of STARTTLS. With
//     smtp.NewClientStartTLS, TestInjectedRepliesBeforeTLS fails (replies injected
//     before the handshake stay unnoticed), TestHelloName (the client calls itself
//     localhost), TestStepTimeouts (the timeouts of greeting, EHLO, STARTTLS and TLS
//     cannot be set) and TestSendFailures (a certificate error is not distinguished from an
//     error of EHLO).
//   - limitedConn sits between TLS and the Client, where NewClientStartTLS leaves no
//     room. Without it TestMisbehavingServerReplies fails: a reply cut off before its
//     line break counts as complete, so a lost message counts as sent.
//   - loginMechanism replaces sasl.NewLoginClient, which requires the challenge
//     "Password:" and sends an initial response (TestSendFailures/LOGIN_only).
package smtp
