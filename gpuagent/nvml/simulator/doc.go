// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulator simulates a node's GPUs. It implements [nvml.Library] for a [Config] and
// simulates events on the node: processes ([Node.Attach]), reboots ([Node.Boot]), lost GPUs
// ([Node.Lose]) and faults during a call ([Node.Fail], [Hooks]).
//
// It keeps the driver's guarantees and varies everything else: the order of lists, the indices
// after a reset, the UUID of an instance at the place of a former one. Two instances never overlap
// ([Node.Check]). It runs no processes and measures nothing: a process has the utilization with
// which it was attached.
//
// [Serve] answers calls of other processes of the machine on a Unix socket, and [Client] is an
// [nvml.Library] on it. Calls and results are JSON, one a line. Errors of the driver keep their
// identity for errors.Is. After a lost connection a call returns ErrUnknown, since it may have been
// carried out: no call is carried out twice. The socket refuses other users than its owner.
package simulator
