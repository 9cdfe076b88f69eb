// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import "fmt"

// Error is an answer of the driver that is not success, by its number in nvml.h.
type Error uint32

// The driver's errors that Sluice tells apart.
const (
	ErrUninitialized         Error = 1
	ErrInvalidArgument       Error = 2
	ErrNotSupported          Error = 3
	ErrNoPermission          Error = 4
	ErrNotFound              Error = 6
	ErrDriverNotLoaded       Error = 9
	ErrTimeout               Error = 10
	ErrLibraryNotFound       Error = 12
	ErrGPULost               Error = 15
	ErrResetRequired         Error = 16
	ErrInUse                 Error = 19
	ErrInsufficientResources Error = 23
	ErrNotReady              Error = 27
	ErrInvalidState          Error = 29
	ErrUnknown               Error = 999
)

var texts = map[Error]string{
	ErrUninitialized:         "the library is not initialised",
	ErrInvalidArgument:       "invalid argument",
	ErrNotSupported:          "not supported",
	ErrNoPermission:          "no permission",
	ErrNotFound:              "not found",
	ErrDriverNotLoaded:       "the driver is not loaded",
	ErrTimeout:               "the driver did not answer in time",
	ErrLibraryNotFound:       "the library libnvidia-ml.so.1 was not found",
	ErrGPULost:               "the GPU is lost",
	ErrResetRequired:         "the GPU has to be reset",
	ErrInUse:                 "in use",
	ErrInsufficientResources: "insufficient resources",
	ErrNotReady:              "not ready",
	ErrInvalidState:          "invalid state",
	ErrUnknown:               "unknown error",
}

// Error implements error.
func (e Error) Error() string {
	if text, ok := texts[e]; ok {
		return fmt.Sprintf("NVML: %s (%d)", text, uint32(e))
	}
	return fmt.Sprintf("NVML: error %d", uint32(e))
}
