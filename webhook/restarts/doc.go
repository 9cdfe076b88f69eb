// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restarts refuses to let a workload be started that Sluice stopped, until
// its stop is over or somebody gave it more time.
//
// Enters: the change, the scaling or the creation of a workload in a governed
// namespace, and the WorkloadClocks of that namespace, from a cache. Leaves: a
// denial that says why and until when the workload is stopped, and what to do; or
// consent.
//
// It holds for everybody, administrators and controllers too. It never refuses
// what stops a workload, nor any other change of a stopped one; never judges what
// a controller makes of another object; never reads pods; and never changes
// anything. Where it cannot tell, it consents: what slips through is stopped again
// by lifecycle.
package restarts
