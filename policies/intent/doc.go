// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intent holds what policies want of an object, before anything is done.
//
// Enters: what the rules of a policy evaluated to. Leaves: one [Intent] for each
// policy, which package merge applies all together. Authors say what an object
// shall be, never how to patch it, so an Intent has no order and no pointers.
//
// It never changes an object, and never evaluates Rego.
package intent
