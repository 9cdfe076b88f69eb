// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mail renders the mail of a Notice: subject, text and HTML in the recipient's
// language, and the deadline as an appointment.
//
// [Compose] takes a [ComposeRequest] with the Notice and the sender, and returns a
// [Message] with the complete bytes for SMTP. The same request gives the same bytes.
//
// A mail first says what happens and when, in the recipient's time zone and as a
// duration. Then it explains why, and how to continue, with commands that exist. Last
// come the facts, the audience, and the contact for questions. All values come from the
// Notice, so a sent mail can be rendered again from its record.
//
// Names come from users. A mail shows them on one line of bounded length without control
// and bidirectional characters. A command contains only names that a shell reads as one
// word.
//
// The package never reads a clock, never contacts the API server or a mail server, and
// never decides whom to notify.
package mail
