// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host reads the node's processes from procfs. It finds other managers that partition the
// node's GPUs, also among the host's units, and returns the pods of a process and the processes that have a
// GPU open. It creates the device nodes of MIG devices on the host, and makes NVIDIA's device plugin and
// dcgm-exporter enumerate the devices again.
//
// A process that hangs in a driver call does not block the package: see [ErrReadTimeout]. The package
// sends no signal but SIGHUP, and none to a process without a handler for it. It counts a user's pod as
// a manager only if the pod has the privileges to partition GPUs. The caller decides what to do about a
// manager.
//
// github.com/prometheus/procfs lists processes and reads command lines. The package implements the rest
// itself, because the library lacks it: a time limit (TestUnreadableProcess), a handle that keeps a
// signal from reaching another process with the same PID, and signal masks (TestSendSIGHUP,
// TestOpenFakeProcessFolder), the boot ID (TestBootID), and cgroup files with an invalid line
// (TestParsePodUIDs, "broken").
package host
