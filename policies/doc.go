// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies is the place of the policy engine and of the Rego that is
// built in: core/*.rego and schedulers/*.rego, each with its tests. It is not
// built yet.
//
// Enters: an admitted object or a project, with its department and pools.
// Leaves: what the policies make of it: the changed object, warnings, or a
// refusal; and the objects in which a scheduler keeps a project's quota.
//
// It never reads or writes the cluster, and never chooses a node.
package policies
