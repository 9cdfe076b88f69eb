// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package badinput tests that the API server rejects invalid Sluice objects with a message
// that names the field and the allowed values. Only the schemas of the CRDs validate the
// objects, since no webhook runs.
//
// Each kind has a valid object in the folder valid, which must be accepted, and a table of
// edits that each make one field invalid. A test fails if no edit of the table covers a
// field of the spec. No object remains in the cluster.
package badinput
