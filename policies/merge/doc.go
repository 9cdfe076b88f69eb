// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package merge applies what policies want of an object, all together.
//
// Enters: a pod, a pod template or a Job as JSON was decoded, and the intents of all
// policies. Leaves: the [Result]: the object as they want it, what its author is
// to be told, who changed what, and the smallest JSON patch; or an error that says
// whose fault it is: a [*ConflictError] of two policies, an [*IntentError] of one,
// an [*ObjectError] of the object.
//
// The intents' order never matters, and applying them again changes nothing. The
// steps, each in the file of its name:
//
//   - plan: the intents become one tree of the pod's parts, with who wants what
//     of each part; where two differ there is a conflict.
//   - remove: what is to go, goes.
//   - override: what the author said otherwise is replaced, with a warning.
//   - fill: what the author left open is filled with the defaults, until nothing
//     is open that a default is for.
//   - append and nodes: elements of lists, and requirements of nodes, are added.
//
// Merging is that of server-side apply by the tables of package podschema, with
// unions replaced whole. What the API server fills in of itself is, by package
// filled, nobody's word: a default takes its place without a warning, and nothing
// is removed that would come back.
//
// The package never changes its input (copy on write: the Result shares what is
// unchanged with it), never asks the cluster, and never evaluates Rego.
package merge
