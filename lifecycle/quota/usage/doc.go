// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage writes UsageRecords: the GPU usage of each project and month, by user,
// type of workload and node pool.
//
// It reads the GPU pods of package podcache, finds their workloads and users through
// WorkloadClocks, and counts the GPU quota of each pod multiplied by the time since it was
// bound to its node, in whole seconds of policy time: from then on it holds its GPUs, also
// while its image is pulled. It writes a record when pods have ended, and hourly while they
// run. Months end in the department's time zone.
//
// The sums are exact across restarts. A record's entries and its cursors are written in
// one request with a resourceVersion precondition. The cursors record until when each
// running workload is included, so the next process continues there. If the response
// to a write was lost, the record itself shows whether it succeeded. A crash loses at
// most the usage of pods that ended in the last ten seconds before it; a regular exit
// loses none. Running pods are counted until some seconds ago, since pods are reported
// late.
//
// Beside the requested usage a record has its used and idle parts, as the agents of the
// nodes sample it. They are measurements: what no sample covers is in neither.
//
// The package does not watch records, does not estimate usage of times without
// observation, and writes nothing for projects without usage.
package usage
