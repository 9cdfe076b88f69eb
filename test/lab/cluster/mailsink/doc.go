// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mailsink is the mail server of the embedded Kubernetes. Run accepts mail over
// SMTP on loopback, with STARTTLS and a password, and stores each mail atomically in a file
// of a folder:
//
//	<dir>/<time>-<recipient>-<number>.eml
//
// [List] and [Read] read the files back. Each mail gets the next number. The server keeps
// the last [MaxMails] mails and forwards none. Readers limit the size, depth and number of
// parts of a mail, because the files may have any content.
package mailsink
