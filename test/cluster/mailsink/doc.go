// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mailsink is the mail server of the embedded Kubernetes: it takes every mail
// and keeps it in a folder, where people read it.
//
// Enters: mail, over SMTP on loopback, with TLS by STARTTLS and a password. Leaves:
// one file for each mail and recipient,
//
//	<dir>/<instant of machine time>-<recipient>-<number>.eml
//
// which is there whole or not at all, and those files read back ([List], [Read]).
// Numbers rise by one; the mail of a number stays the same. The oldest go where there
// are more than [MaxMails].
//
// It never sends a mail on, takes none without the password, and believes nothing of
// what lies in its folder: what is read is bounded in size, depth and number of parts.
package mailsink
