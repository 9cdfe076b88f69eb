// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// MIGMode implements nvml.Library.
func (l *library) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := withGPU(l, gpu, l.readMode)
	return modes.current, modes.pending, err
}

type migModes struct{ current, pending nvml.Mode }

func (l *library) readMode(dev *device) (migModes, error) {
	return callValue(l, "nvmlDeviceGetMigMode", func() (migModes, gonvml.Return) {
		current, pending, ret := dev.GetMigMode()
		return migModes{current == gonvml.DEVICE_MIG_ENABLE, pending == gonvml.DEVICE_MIG_ENABLE}, ret
	})
}

// SetMIGMode implements nvml.Library.
func (l *library) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	requested := gonvml.DEVICE_MIG_DISABLE
	if mode == nvml.Enabled {
		requested = gonvml.DEVICE_MIG_ENABLE
	}
	const function = "nvmlDeviceSetMigMode"
	activation, err = withGPU(l, gpu, func(dev *device) (error, error) {
		activation, err := callValue(l, function, func() (gonvml.Return, gonvml.Return) { return dev.SetMigMode(requested) })
		if err != nil {
			return nil, err
		}
		return toError(function, activation), nil
	})
	// The driver may have unbound or reset the GPU, which invalidates handles and indices.
	l.handles.invalidate()
	return activation, err
}

// Reset implements nvml.Library with nvidia-smi, since NVML has no function for it. It disconnects
// NVML during the reset, because NVML keeps the GPU open. Other calls wait until NVML is connected
// again. Only root may reset a GPU.
func (l *library) Reset(gpu string) error {
	_, err := withGPU(l, gpu, l.readMode)
	for _, wrong := range []nvml.Error{nvml.ErrUninitialized, nvml.ErrInvalidArgument, nvml.ErrNotFound} {
		if errors.Is(err, wrong) { // A reset may resolve other errors.
			return err
		}
	}
	release, err := l.gate.acquireExclusive(idleTimeout)
	if err != nil {
		return fmt.Errorf("reset GPU %s: %w", gpu, err)
	}
	defer release()
	if !l.gate.open {
		return nvml.ErrUninitialized
	}
	if err := l.disconnect(); err != nil {
		return fmt.Errorf("reset GPU %s: %w", gpu, err)
	}
	err = runReset(l.config, gpu)
	if connectErr := l.connect(); connectErr != nil {
		return errors.Join(err, fmt.Errorf("connect to the driver after a reset of GPU %s: %w", gpu, connectErr))
	}
	return err
}

func runReset(config Config, gpu string) error {
	ctx, cancel := context.WithTimeout(context.Background(), config.ResetTimeout)
	defer cancel()
	var output bytes.Buffer
	command := exec.CommandContext(ctx, config.ResetCommand, "--gpu-reset", "-i", gpu) // #nosec G204 -- the operator's own
	command.Env = append(os.Environ(), "LC_ALL=C")
	command.Stdout, command.Stderr = &output, &output
	command.WaitDelay = 5 * time.Second
	err := command.Run()
	text := strings.Join(strings.Fields(output.String()), " ")
	if ctx.Err() != nil {
		return fmt.Errorf("GPU %s: %s did not end within %s: %q: %w", gpu, config.ResetCommand, config.ResetTimeout, text, nvml.ErrTimeout)
	}
	var ended *exec.ExitError
	switch {
	case err == nil && !strings.Contains(text, "could not be reset"):
		return nil
	case err != nil && !errors.As(err, &ended):
		return fmt.Errorf("GPU %s cannot be reset by the agent: %w: %w", gpu, err, nvml.ErrNotSupported)
	}
	status := 0
	if ended != nil {
		status = ended.ExitCode()
	}
	return fmt.Errorf("GPU %s: %s ended with %d: %q: %w", gpu, config.ResetCommand, status, text, parseResetError(text, status))
}

// parseResetError returns the error that nvidia-smi's output describes, or else the error of its
// exit status. Only some exit statuses equal NVML's error codes.
func parseResetError(text string, status int) nvml.Error {
	text = strings.ToLower(text)
	for _, known := range []struct {
		words string
		code  nvml.Error
	}{
		{"in use", nvml.ErrInUse},
		{"being used", nvml.ErrInUse},
		{"insufficient permissions", nvml.ErrNoPermission},
		{"no devices were found", nvml.ErrNotFound},
		{"is lost", nvml.ErrGPULost},
		{"fallen off the bus", nvml.ErrGPULost},
		{"couldn't communicate with the nvidia driver", nvml.ErrDriverNotLoaded},
		{"version mismatch", nvml.ErrDriverNotLoaded},
		{"not supported", nvml.ErrNotSupported},
		{"primary gpu", nvml.ErrNotSupported},
		{"nvlink", nvml.ErrNotSupported}, // resettable only with its NVLink peers
		{"together", nvml.ErrNotSupported},
	} {
		if strings.Contains(text, known.words) {
			return known.code
		}
	}
	switch code := nvml.Error(status); code { //nolint:gosec // An exit status is a byte.
	case nvml.ErrInvalidArgument, nvml.ErrNotSupported, nvml.ErrNoPermission, nvml.ErrNotFound,
		nvml.ErrDriverNotLoaded, nvml.ErrLibraryNotFound, nvml.ErrGPULost, nvml.ErrInUse:
		return code
	default:
		return nvml.ErrUnknown
	}
}
