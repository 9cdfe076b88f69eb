// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies is the Rego that is built in: core/*.rego says what holds for
// every pod of a project, schedulers/*.rego what each scheduler must read, and
// core/lib/*.rego is what they, and the policies of platform teams, share.
//
// Enters: nothing; the Rego is embedded when Sluice is built. Leaves: the sources
// of the built-in policies and the libraries, for package engine. Their answers
// are for package merge: the fields that a pod gets, what is refused, and the
// objects in which a scheduler keeps a project's quota.
//
// The built-in policies read little of their input, and none of them reads the
// time or the present use, so that the pods of one controller are judged once.
// What may be set of them is in package parameters.
//
// Nobody has a GPU that is not charged, whatever stands in the place of the policies
// that may be replaced: core.quota, which may not, charges what a pod asks for,
// keeps it in the pool of which it is charged, and refuses a pod that in the end
// has more. All that the policies want is done at once, and they are asked again
// about what came of it; a charge that then is another refuses the pod too.
//
// The package never evaluates a policy, never reads or writes the cluster, and
// never chooses a node.
package policies
