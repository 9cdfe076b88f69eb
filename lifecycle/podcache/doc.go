// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podcache caches the GPU pods of the cluster that have not ended.
//
// One reflector decodes each pod of the API server's stream into a record of a few hundred
// bytes, and drops pods that request no GPU. A [Store] finds a [Pod] by name, UID,
// controller, namespace and node, and calls subscribers for each [Change]. A [Projection]
// keeps what one consumer needs in addition, of the few pods that it selects.
//
// The requests of a pod decide whether it is a GPU pod, never a label: pods from before
// their namespace was governed count, and pods whose request cannot be parsed. GPUs that
// only a ResourceClaim requests are not visible here.
//
// A hundred thousand decoded pods take most of a gigabyte, so they are never in memory
// together: they come one by one from the initial events of a watch, or in pages of a list.
// Repeated strings (namespaces, nodes, pools, users, controllers) are interned.
//
// While the API server is unreachable the Store keeps its pods. After a new list only
// differences are changes. The package writes nothing, does not resolve root workloads
// (package owner does), and does not wait for subscribers' work.
package podcache
