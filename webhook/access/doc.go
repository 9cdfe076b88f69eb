// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access tells who may write what of departments and projects.
//
// Enters: the user of a request, as its authentication says it, a department or a
// project, and what a change makes of it. Leaves: how much of it is the user's, as
// the API server says it, which fields the change touches, and which members the
// user may not make such, or take away.
//
// It never decides by itself whose anything is, and remembers no answer.
package access
