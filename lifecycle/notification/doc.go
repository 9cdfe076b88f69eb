// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notification records Notices, the messages to people. Package outbox sends
// them, so this package is the only seam between events and mail.
//
// [Recorder] takes an [Announcement] and its recipients, and creates a Notice for each.
// The Notice's name is a hash of its identity, so the same announcement is recorded once,
// however often and by whichever controller. [DigestSchedule] computes when a department's
// digests are due.
//
// Two reconcilers announce the use of quota. [QuotaThresholdReconciler] reads the
// allocation in a Project's status, sets the condition QuotaNearlyUsed and records a
// Notice, once until the use has fallen well below the threshold.
// [WeeklySummaryReconciler] reads Departments with their Projects, WorkloadClocks,
// Extensions and UsageRecords. It records one Notice a week for each contact, due at the
// first digest of the week, or on Monday at eight without a digest; it does not make up
// for weeks without a running lifecycle.
//
// The package never sends mail and never limits anything. All other announcements are
// decided by their callers.
package notification
