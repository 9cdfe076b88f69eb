// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy shows the policies that are in force as Policy objects.
//
// Enters: the policies that are built in, and what the engine made of these and
// of the Policy objects (package policies/live). Leaves: a Policy object for each
// built-in policy, so that `kubectl get policies` lists all that is enforced; and
// the status of every Policy object: whether it compiles, where it does not, and
// which generation is in force. Ready says whether pods are judged by it: not where
// another policy stands in its place, and not with parameters that are wrong.
//
// The objects of built-in policies are for reading: what is changed there comes
// back, except for spec.parameters, which is the platform team's and is never
// written here. Objects that mirror a policy which is no longer built in are
// deleted.
//
// It never decides what is in force, and never writes another team's spec.
package policy
