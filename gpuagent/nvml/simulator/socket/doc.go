// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package socket serves a simulated node's driver to other processes of the machine. [Serve]
// answers calls on a Unix socket, and [Client] is an [nvml.Library] on it.
//
// Calls and results are JSON, one a line. Errors of the driver keep their identity for errors.Is.
// After a lost connection a call returns ErrUnknown, since it may have been carried out. The
// package caches no result, carries no call out twice, and refuses other users: the socket is its
// owner's.
package socket
