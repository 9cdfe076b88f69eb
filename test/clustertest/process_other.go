// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clustertest

import "syscall"

func endWithThread() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
