// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package merge applies the changes of all policies to an object at once.
//
// It takes a pod, a pod template or a Job as decoded from JSON, and the desired changes
// of all policies. It returns a [Result]: the changed object, warnings for its author,
// the paths that each policy changed, and the smallest JSON patch. An error names who
// must act: [*ConflictError] for two policies, [*InvalidChangesError] for one policy,
// [*InvalidObjectError] for the object.
//
// The order of the changes never matters, and applying them again changes nothing. The
// steps:
//
//   - plan: the changes become one tree of the object's parts, with the value that each
//     policy sets. Different values for one part are a conflict.
//   - remove: delete what policies remove.
//   - override: replace the author's values, with a warning.
//   - default: fill what the author left open, until nothing open has a default.
//   - append and nodes: add list elements and node requirements.
//
// Merging follows server-side apply by the tables of package schema, except that unions
// are replaced as a whole. Values that the API server sets itself (also in schema) do
// not count as the author's: a default replaces them without a warning, and they are not
// removed, since they would come back.
//
// Server-side apply's library structured-merge-diff cannot do this, as
// TestStructuredMergeDiffCannotReplaceApply shows. It puts a new container before the main
// one. It rejects or keeps a variable that occurs twice, where the last one must win. It sets
// both members of a union. Null removes nothing. 500m differs from 0.5. A field newer than
// its schema is an error. It knows no defaults below an object, no selector such as "*", and
// no difference between an author's value and the API server's. Building its schema takes
// 0.2 to 0.4 s at each start, and it has no unions and no pointers, so package schema keeps
// tables of its own, which a test compares with that schema.
//
// The package never changes its input: the Result shares unchanged parts with it. It never
// reads the cluster and never evaluates Rego.
package merge
