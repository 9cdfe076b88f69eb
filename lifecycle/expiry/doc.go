// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry decides when projects expire.
//
// [Decide] is pure: it gets the present time, what the project's status records, the terms of its department, and what
// became of the warnings. It returns the next record, the warnings that are due and the next time to decide.
//
// A step of the expiry has a recorded deadline. It happens when the deadline has passed and the project's owners got
// the full notice: the first warning was sent the longest lead ago that fits, the last one its own lead ago, both
// without the department's holidays. A warning that is late moves the deadline by whole days; nothing moves it to an
// earlier time except a change of the department's terms, which schedules the expiry anew with all leads ahead.
package expiry
