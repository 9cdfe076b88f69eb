// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stubapi is an API server in memory, for measuring a controller: it
// costs little, so that what is measured is the controller, and it counts.
//
// Enters: the requests of client-go, in JSON or protobuf: discovery, get, list in
// pages, watch with initial events and bookmarks, create, update, merge and apply
// patches, status, delete; and a [Fleet] of generated pods. Leaves: what a real
// server would answer, as far as a controller can tell; and how many writes there
// were, by verb and resource.
//
// What it leaves out: it admits everything, validates and defaults nothing beyond
// metadata, knows no managed fields (an apply patch is a merge that creates), and
// runs no controllers beyond the reactions that it is given. Pods are kept
// encoded, so that a hundred thousand of them are streamed as fast as they are
// read.
//
// It is never part of what is shipped, never listens beyond loopback, and never
// says that something was tested that only a real server can tell.
package stubapi
