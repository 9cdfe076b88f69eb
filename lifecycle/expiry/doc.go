// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry takes the steps of the expiry of projects, after full notice, and applies their renewals.
//
// [Decide] is pure: it gets the present time, what the project's status records, the terms of its department, and what
// became of the warnings. It returns the next record, the warnings that are due and the next time to decide.
//
// A step of the expiry has a recorded deadline. It happens when the deadline has passed and the project's owners got
// the full notice: the first warning was sent the longest lead ago that fits, the last one its own lead ago, both
// without the department's holidays. A warning that is late moves the deadline by whole days; nothing moves it to an
// earlier time except a change of the department's terms, which schedules the step again with all leads ahead.
//
// [Reconciler] reads Projects, their Departments, Notices and Extensions, and whether mail is paused. It records the
// Notices, marks those that no longer hold as superseded, and writes the Project's status: the phase, which no other
// controller writes, the next step and when the project was closed. It records in each approved renewal whether it was
// applied. Package outbox sends the Notices; package extension decides the renewals.
//
// It requests the deletion of a project with an Extension, applies the decision of the department's administrators, and
// deletes the Project object seven days after its owners were informed. Its finalizer, in package project, does the rest.
// The package stops no workload.
package expiry
