// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import "golang.org/x/sys/unix"

// sendSignal sends a signal to the process of a descriptor.
func sendSignal(pidfd int, signal unix.Signal) error {
	return unix.PidfdSendSignal(pidfd, signal, nil, 0)
}
