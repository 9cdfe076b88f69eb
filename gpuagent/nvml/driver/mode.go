// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// MIGMode implements nvml.Library.
func (l *library) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := on(l, gpu, l.modes)
	return modes.current, modes.pending, err
}

type modes struct{ current, pending nvml.Mode }

func (l *library) modes(dev *device) (modes, error) {
	return ask(l, "nvmlDeviceGetMigMode", func() (modes, gonvml.Return) {
		current, pending, ret := dev.GetMigMode()
		return modes{current == gonvml.DEVICE_MIG_ENABLE, pending == gonvml.DEVICE_MIG_ENABLE}, ret
	})
}

// SetMIGMode implements nvml.Library.
func (l *library) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	asked := gonvml.DEVICE_MIG_DISABLE
	if mode == nvml.Enabled {
		asked = gonvml.DEVICE_MIG_ENABLE
	}
	const function = "nvmlDeviceSetMigMode"
	activation, err = on(l, gpu, func(dev *device) (error, error) {
		became, err := ask(l, function, func() (gonvml.Return, gonvml.Return) { return dev.SetMigMode(asked) })
		if err != nil {
			return nil, err
		}
		return answer(function, became), nil
	})
	// The driver may have unbound or reset the GPU; handles and indices are new.
	l.handles.forget()
	return activation, err
}
