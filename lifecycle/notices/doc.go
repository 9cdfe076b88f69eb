// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices records who is to be told what. What is recorded is sent by package
// outbox: this is the one seam between what happens and mail.
//
// Enters: an [Announcement], and the people it is for. Leaves: a Notice for each
// of them. Its name is made of what it says, so that the same is recorded once,
// whoever records it and however often.
//
// It never decides who is told what, or when.
package notices
