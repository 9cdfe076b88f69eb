// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access tells who may write what of departments and projects.
//
// Enters: the user of a request, as its authentication says it, a department, and
// members before and after a change. Leaves: how much the user may administer, as
// the API server says it, and which members the user may not make such.
//
// It never decides by itself who may administer, and remembers no answer.
package access
