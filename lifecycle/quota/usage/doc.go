// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage keeps the UsageRecords: who used how much of the GPUs, by project
// and month.
//
// Enters: the GPU pods of package gpupods as they begin and end, the workloads they
// belong to, whose they are by their WorkloadClocks, and policy time. Leaves: one
// UsageRecord for each project and month in which GPUs were used, written when pods
// have ended, and hourly while they run; a counter for Prometheus.
//
// What counts is what a pod is charged, for as long as it runs, in whole seconds of
// policy time. It is exact, whatever happens between: a record's entries are
// written together with its cursors, which say up to when each workload that runs
// is in them, and the write is refused if somebody else was quicker. So a process
// that comes after goes on where the record ends: never before a cursor, and never
// twice. A write whose answer was lost is told by what the record says. What cannot
// be saved is what a process takes along that dies: the use, since they were last
// accounted for, of pods that ended so shortly before that no write came after.
// That is some ten seconds, and the second that a failed write is tried again in;
// of one process that ends in order it is nothing.
//
// What is running is added up to some seconds ago, since pods are reported late;
// what has ended, up to its end. A month ends where it does in the department's
// time zone, to the second.
//
// It never watches records, never guesses what ran while nobody looked, and never
// writes where nothing was used.
package usage
