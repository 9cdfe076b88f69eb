// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process keeps a group of components running, each a program or a function.
// Group.Start returns when the component is ready. The group restarts a component that
// ends, with growing delays, and writes its output to <dir>/logs. Group.Stop ends all
// components. On Linux the kernel kills the programs if this process is killed. On other
// systems ReapLeftovers ends them at the next start, by the records in <dir>/run; a record
// names a process by its ID and start, so that a reused process ID is never signaled.
//
// TryLock and WaitForLock let one process at a time work in a folder.
package process
