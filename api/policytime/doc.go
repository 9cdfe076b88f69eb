// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock is Sluice's one seam to time.
//
// There are two times. Policy time governs limits, leads, validity, idleness,
// resets, cron schedules and what policies read as input.now; it comes from a
// [Clock]. Machine time governs time-outs, retries, leases, certificates,
// sampling, freshness and event times; it is always real and comes from
// [MachineNow]. Outside the embedded cluster the two are the same.
//
// Enters: real instants, and the file in which an embedded cluster keeps the
// scale and the steps of its policy time. Leaves: instants of policy time, and
// how long to sleep, in real time, until one of them.
//
// It never lets policy time run backwards, and never sleeps itself.
package policytime
