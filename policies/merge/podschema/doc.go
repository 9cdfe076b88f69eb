// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podschema says of what a pod and a Job consist, and how their parts are
// merged.
//
// Enters: the Go types of k8s.io/api and three small tables: the keys of
// associative lists, what is replaced whole, and the unions. Leaves: one [Type]
// for each of their parts, with its fields.
//
// The tables are what server-side apply uses, which a test holds against its own
// schema; each departure is listed in that test with its reason.
//
// It never looks at an object.
package podschema
