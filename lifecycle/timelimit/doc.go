// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ending decides how a workload's time runs, when its people are warned
// and when it ends.
//
// Enters: the instant, what was recorded of the workload so far (the status of
// its WorkloadClock), what is seen of it now, and what holds for it. Leaves: what
// is to be recorded, the warnings to be given, whether it is to be stopped, and
// when to ask again. It is one pure function, [Decide].
//
// It never reads a clock, and never acts. It relies on nothing that was not
// recorded: a workload is stopped at its limit only once a warning of that end, or
// of an earlier one, stands in the record for at least the shortest lead. So a
// crash between any two writes loses nothing and stops nothing unannounced.
//
// All instants are policy time, in whole seconds.
package timelimit
