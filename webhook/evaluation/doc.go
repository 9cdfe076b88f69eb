// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evaluation has what all admission handlers share.
//
// The [Evaluator] evaluates the policies in force (package decision) for admission requests: projects share its slots fairly,
// policies in DryRun are evaluated after the answer, and violations are counted. [TenantResolver] finds the project that owns a
// namespace, [NewResponse] answers, and [NewRecorder] records and measures what a [Trace] collects.
//
// The package reads the cluster only through the resolver's cache.
package evaluation
