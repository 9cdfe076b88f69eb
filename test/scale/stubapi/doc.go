// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stubapi is an API server in memory for measuring controllers: it is cheap, so
// that measurements show the cost of the controller, and it counts writes. It serves
// client-go's requests in JSON or protobuf: discovery, get, list in pages, watch with
// initial events and bookmarks, create, update, merge and apply patches, status and delete.
// A [Fleet] fills it with generated pods. The server has no admission, no validation, no
// defaults beyond metadata, no managed fields (an apply patch is a merge that creates), and
// no controllers other than its reactions. Pods are stored encoded, so that it streams a
// hundred thousand of them at the client's speed. Tests that depend on a real server's
// behavior must not use it.
package stubapi
