// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render keeps the objects that policies render for a project, a
// department or a node pool, the [Subject]: quotas, the queues of its engines, and
// whatever else of the few kinds that policies may render.
//
// Enters: a subject with what policies are told of it, and the policies in force.
// Leaves: the objects in the project's namespace, or cluster-wide under the
// subject's own name, applied, kept as they were rendered and taken back when no
// policy renders them any more; and what policies wanted and could not have, as
// [Fault]s for people to read.
//
// It never writes outside of the subject's [Place] or another kind than those of
// its list, never takes over what somebody else made unless they handed it over,
// takes back nothing but what bears the subject's label and was applied by
// lifecycle, and nothing at all while any policy could not say what it renders.
package apply
