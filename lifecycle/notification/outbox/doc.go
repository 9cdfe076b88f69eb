// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbox sends the Notices that others recorded: each at least once, and a
// crash at any point repeats at most that one message, under the same Message-ID.
//
// Enters: Notices; through two seams the mail that one becomes ([Composer]) and the
// way to the mail server ([Carrier]); and the ConfigMap by which mail is paused.
// Leaves: mail, what became of it in the status of each Notice, the digests that
// collect the Notices naming them, metrics, and an event when mail pauses.
//
// [Decide] says of one Notice what is to be done now, without a client or a clock.
// The [Sender] is the only one that acts: it claims a Notice by its resourceVersion
// before the mail server is spoken to, so that two that both believe they lead send
// it once. A claim that is old is taken over.
//
// It never decides who is told what, never keeps a workload from ending, writes
// nothing when nothing is due, and takes only Notices away that ended 13 months ago.
package outbox
