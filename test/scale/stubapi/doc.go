// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stubapi is an in-memory API server for measurements of a controller. It is cheap,
// so that the controller dominates the cost, and it counts writes.
//
// It serves client-go in JSON and protobuf: discovery, get, paged lists, watches with initial
// events and bookmarks, create, update, merge and apply patches, status, and delete. It can
// be filled with a [Fleet] of generated pods, which it stores encoded, so that it streams a
// hundred thousand of them as fast as a client reads.
//
// It admits every object, validates and defaults only metadata, has no managed fields (an
// apply patch is a merge that can create), and runs no controllers except the given
// reactions. It listens on loopback only and is not part of the product.
package stubapi
