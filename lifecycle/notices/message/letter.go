// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"net/mail"

	"sluice.dev/api/v1alpha1"
)

// Letter is what a mail is made of.
type Letter struct {
	// Notice is the message: its spec, name, UID and creation are read, its status is not.
	Notice *v1alpha1.Notice
	// Carried are the Notices that a Digest carries; for other kinds there are none.
	Carried []*v1alpha1.Notice
	// From is the sender that the mail shows.
	From mail.Address
	// ReplyTo is where answers go, and whom the mail names for questions; empty for From.
	ReplyTo string
	// Domain is what stands behind the @ of a Message-ID.
	Domain string
	// Sequence rises with each change of the subject's deadline, so that a calendar
	// takes the latest.
	Sequence int
	// Sequences are the same for what a Digest carries, by the names of these Notices.
	Sequences map[string]int
	// Cancelled takes the subject's appointment out of the recipient's calendar.
	Cancelled bool
	// Templates are the texts; nil for those that are built in.
	Templates *Templates
}

// Mail is a message as it is sent.
type Mail struct {
	// MessageID is that of the mail, with its angle brackets.
	MessageID string
	// Subject is the subject as people read it.
	Subject string
	// Bytes are the whole mail. Its lines end in CRLF and none is longer than 998 bytes.
	Bytes []byte
	// Text and HTML are its two bodies, with line feeds alone.
	Text, HTML string
}

// optional are the kinds that nobody has to read.
var optional = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeQuotaThreshold: true, v1alpha1.NoticeWeeklySummary: true,
	v1alpha1.NoticeOverShare: true, v1alpha1.NoticeProjectRenewed: true,
}

// unnamed are the kinds that speak of no object, and alone those that no Digest
// carries.
var (
	unnamed = map[v1alpha1.NoticeKind]bool{v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true}
	alone   = map[v1alpha1.NoticeKind]bool{v1alpha1.NoticeDigest: true, v1alpha1.NoticeTest: true, v1alpha1.NoticeWeeklySummary: true}
)

// dated are the kinds that are nothing without a deadline.
var dated = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeWorkloadEnding: true, v1alpha1.NoticeWorkloadIdle: true, v1alpha1.NoticePreemption: true,
	v1alpha1.NoticeProjectExpiring: true, v1alpha1.NoticeProjectSuspending: true, v1alpha1.NoticeProjectConfirm: true,
}
