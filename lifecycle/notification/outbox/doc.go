// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbox sends recorded Notices as mail, each at least once. A crash at any point
// repeats at most one message, under the same Message-ID.
//
// It reads Notices, and the ConfigMap by which mail is paused. It sends mails, through
// a [Composer] that renders them and a [Transport] to the mail server; [NewSender] connects
// them with packages mail and smtp, as the mail configuration says. It writes the
// status of each Notice, the digests that collect Notices, metrics, and events when mail
// pauses or resumes.
//
// [Decide] returns the next action for one Notice; it uses no client and no clock. The
// [Sender] acts: it claims a Notice by its resourceVersion before it contacts the mail
// server, so two Senders that both consider themselves leader send it once. An expired
// claim is taken over. [Retention] deletes finished Notices: those about
// workloads after 30 days, the others after 13 months.
//
// The package never decides who is notified, never delays the end of a workload, and
// writes nothing when nothing is due.
package outbox
