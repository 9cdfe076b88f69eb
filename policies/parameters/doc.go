// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parameters says what platform teams may set of the built-in policies.
//
// Enters: the parameters of a policy as JSON. Leaves: what is wrong with them,
// one fault for each, with its value and what is allowed; and the parameters as
// they are shipped, which each built-in policy reads where nothing is set.
//
// All of them stand in one table, by policy. A policy that is not in it takes
// none.
//
// It never reads Policy objects, and never decides what is in force.
package parameters
