// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package served gives a simulated node's driver to other processes of the machine:
// a server on a Unix socket, and a client that is an [nvml.Library].
//
// Enters and leaves: one call a line and its answer, as JSON. Errors of the driver
// keep their identity under errors.Is. A call whose connection dies was carried out
// or was not: ErrUnknown, as on a real node.
//
// It never keeps an answer, never carries a call out twice, and never takes calls from
// other users of the machine: the socket is its owner's alone.
package socket
