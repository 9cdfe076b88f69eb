// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// alreadyInitialised is what nvmlInit says where there is nothing left to do.
const alreadyInitialised = nvml.Error(gonvml.ERROR_ALREADY_INITIALIZED)

// ask makes one call that answers with a value.
func ask[T any](l *library, function string, call func() (T, gonvml.Return)) (value T, err error) {
	err = l.tell(function, func() (ret gonvml.Return) {
		value, ret = call()
		return ret
	})
	return value, err
}

// tell makes one call. A function that the library lacks is not called: the dynamic
// loader would end the process. A panic of the binding becomes ErrUnknown: the call's
// effect is not known.
func (l *library) tell(function string, call func() gonvml.Return) error {
	return guarded(function, func() error {
		if err := l.api.Extensions().LookupSymbol(function); err != nil {
			return fmt.Errorf("this version of the driver's library has no %s: %w", function, nvml.ErrNotSupported)
		}
		return answer(function, call())
	})
}

func guarded(function string, call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%s: the binding failed: %v: %w", function, reason, nvml.ErrUnknown)
		}
	}()
	return call()
}

// answer is a function's answer as an error; nil for success.
func answer(function string, ret gonvml.Return) error {
	switch ret {
	case gonvml.SUCCESS:
		return nil
	case gonvml.ERROR_FUNCTION_NOT_FOUND, gonvml.ERROR_ARGUMENT_VERSION_MISMATCH, gonvml.ERROR_DEPRECATED:
		return fmt.Errorf("%s: the library and the driver do not both have it (%d): %w", function, uint32(ret), nvml.ErrNotSupported)
	case gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%s: the library that is loaded is not of the version of the driver that runs, which was replaced; start the agent again: %w", function, nvml.ErrDriverNotLoaded)
	default:
		return fmt.Errorf("%s: %w", function, nvml.Error(ret))
	}
}
