// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package badinput proves that the API server refuses what is wrong in Sluice's
// objects, field by field, with a message that names the field and says what is
// allowed.
//
// Enters: a client of a cluster that has Sluice's CRDs and none of its
// webhooks: the schemas alone must do it. For each kind there is a valid object
// (folder valid), which must be accepted, and a table of edits, each of which
// makes it wrong in one field. Leaves: test failures, also for a field of
// a spec which no edit makes wrong.
//
// It never leaves an object behind.
package badinput
