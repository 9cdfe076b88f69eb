// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decision decides what the policies make of a pod, a pod template or a Job.
//
// A [Request] has the object, the admission request it arrived in, the policies, and the [Tenant] that owns its namespace.
// The [Result] has the denials, the warnings, the changed object, and which policy changed what. It depends on nothing
// else: an equal request has an equal result.
//
// The [Evaluator] merges the changes of all policies and evaluates the policies again on the changed object. What a policy
// requests of parts that others added is merged as well. A policy that changes again what it changed before, or that
// requests changes after three rounds, is at fault, and the denial names it.
//
// The package never reads the cluster, and never modifies the object it receives.
package decision
