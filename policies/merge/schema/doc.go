// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schema describes the parts of a pod and a Job: how they are merged, and which of
// them their author left open.
//
// It takes the Go types of k8s.io/api and small tables: the keys of associative lists,
// the types that are replaced as a whole, and the unions. It returns one [Type] for each
// part, with its fields. The tables are those of server-side apply; a test compares them
// with its schema and lists each difference with its reason. The package also compares
// JSON values and quantities.
//
// [ClusterDefaults] takes a value and its [Location], and reports whether it is absent or
// equals what the API server sets before admission webhooks see the pod. That includes the
// defaults, and the admission plugins that are on by default (LimitRanger, ServiceAccount,
// Priority, DefaultTolerationSeconds, RuntimeClass). An author's value that equals the
// default counts as open too, since the two cannot be distinguished.
//
// Tests compare these rules with a real API server: what the server adds is open,
// everything else is not. Three additions cannot be recognized in the pod and count as
// the author's: the ServiceAccount's imagePullSecrets, and the node selector and
// tolerations of a RuntimeClass. The package never changes an object and never reads the
// cluster.
package schema
