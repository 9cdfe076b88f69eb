// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process keeps a group of components running: programs, and
// functions that stand in for programs.
//
// A Spec enters, one per component; what leaves is a component that is ready,
// that is started again with growing pauses when it ends, whose output lies in
// <dir>/logs, and that is gone when the group is stopped, when this process
// ends, or when this process is killed:
//
//	group, err := process.NewGroup(dir)
//	err = group.Start(ctx, process.Spec{Name: "etcd", Path: "/usr/bin/etcd", Ready: probe})
//	...
//	err = group.Stop(ctx)
//
// On Linux the kernel kills the programs together with this process. Elsewhere,
// and for what slipped through, <dir>/run has a record of each program, and
// ReapLeftovers ends what an earlier, killed run has left. A record names a
// process by its id and its start, so a stranger that was given the same id
// later is never touched.
//
// The package never signals a process that it has not started or recorded, and
// knows nothing of Kubernetes.
package process
