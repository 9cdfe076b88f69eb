// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import "golang.org/x/sys/unix"

// sendSignal returns ENOSYS: only Linux has descriptors of processes. The command line contains this package for the agent's
// configuration; the agent itself runs on Linux.
func sendSignal(int, unix.Signal) error { return unix.ENOSYS }
