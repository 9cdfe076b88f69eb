// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timelimit decides how long a workload may run, when its people are warned, and
// when it is stopped. [Decide] is a pure function: it reads no clock and writes nothing.
//
// Decide gets the time, the recorded status of a WorkloadClock, an [Observation] and the
// [EffectiveLimits]. It returns the next status, the warnings to send, whether to stop the
// workload, and the time of the next decision. It stops a workload at its limit only if the
// status has held a warning of that deadline, or of an earlier one, for at least the
// shortest lead. So a crash between two writes loses no warning and stops nothing
// unannounced.
//
// All times are policy time in whole seconds.
package timelimit
