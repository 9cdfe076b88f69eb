// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale holds the lifecycle controller against a cluster full of work:
// its binary, as a process of its own, against the API server in memory of package
// stubapi; where it sends mail, against a real one and a mail server.
//
// Enters: a fleet of jobs with their pods, and steps of policy time; or thousands of
// Notices. Leaves: test results on a small fleet, of what is done and what is not
// written; on the large one, as benchmarks, how much memory it takes, how late
// workloads end and how soon after a start, and how fast mails are sent. A test never
// judges a time.
//
// Its figures count what the stub costs in, too, since both share the machine. It
// never leaves a process behind, and says nothing of a real API server's speed.
package scale
