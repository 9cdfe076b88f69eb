// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evaluation evaluates the policies for a pod, a pod template or a Job and merges their changes into it.
//
// A [Request] has the object, the admission request it arrived in, and the [Tenant] that owns its namespace.
// The [Result] has the denials, the warnings, the changed object, and which policy changed what.
//
// The evaluator merges the changes of all policies and evaluates the policies again on the changed object. What a policy
// requests of parts that others added is merged as well. A policy that changes again what it changed before, or that
// requests changes after three rounds, is at fault, and the denial names it.
//
// The package also has what all admission handlers share: [Base], [TenantResolver], [NewResponse] and [NewRecorder].
// It reads the cluster only through the resolver's cache, and never modifies the object it receives.
package evaluation
