// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procfs writes a node's /proc, as far as a GPU agent looks into it.
//
// What enters are the processes of simulated pods. What leaves is a folder with
// what the kernel would show of them (cgroup, cmdline, comm, stat), the boot's
// identity, and an entry for one process that is real and stands in for the
// device plugin. Simulated processes have identifiers that the kernel gives to
// none, so that nobody can mistake one for a process that can be signalled.
//
// The package never reads the real /proc, and never starts or signals anything.
package procfs
