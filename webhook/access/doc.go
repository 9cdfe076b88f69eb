// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access asks the API server what a user may do.
//
// Enters: the user of a request, as its authentication says it, and a department.
// Leaves: whether the user may administer it.
//
// It never decides by itself who may, and remembers no answer.
package access
