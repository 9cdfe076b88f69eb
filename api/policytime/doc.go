// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policytime is the only source of time in Sluice.
//
// There are two times. Policy time is used for limits, leads, validity, idleness, resets,
// cron schedules and input.now of policies; it comes from a [Clock]. Machine time is used
// for timeouts, retries, leases, certificates, sampling, freshness and event times; it is
// always real and comes from [MachineNow]. They differ only in an embedded cluster, which
// keeps the scale and the steps of its policy time in a file.
//
// Policy time never runs backwards. The package never sleeps;
// [NotifySteps] polls the file.
package policytime
