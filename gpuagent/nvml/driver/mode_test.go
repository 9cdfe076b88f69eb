// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// fakeNvidiaSMI returns a script in place of nvidia-smi that records its arguments.
func fakeNvidiaSMI(t *testing.T, body string) (command, noted string) {
	t.Helper()
	dir := t.TempDir()
	command, noted = filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "noted")
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\n%s\n", noted, body)
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil { //nolint:gosec // a script is executable
		t.Fatal(err)
	}
	return command, noted
}

// The outputs are nvidia-smi's own.
func TestReset(t *testing.T) {
	const inUse = `The following GPUs could not be reset:
  GPU 00000000:1A:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g. Fabric
Manager, CUDA application, graphics application such as an X server, or a
monitoring application such as another instance of nvidia-smi). Please first kill
all processes using this device and all compute applications running in the
system.`
	say := func(text string, status int) string {
		return fmt.Sprintf("cat <<'END'\n%s\nEND\nexit %d", text, status)
	}
	for _, c := range []struct {
		name, body string
		want       nvml.Error
	}{
		{"done", say("GPU 00000000:1A:00.0 was successfully reset.\nAll done.", 0), 0},
		{"in use", say(inUse, 255), nvml.ErrInUse},
		{"in use, in older versions' words", say("GPU 00000000:C1:00.0 is currently in use by another process.", 255), nvml.ErrInUse},
		{
			"not reset, with status 0", say("The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: Unknown Error", 0),
			nvml.ErrUnknown,
		},
		{"not supported", say("Resetting GPU 00000000:00:1E.0 is not supported.", 3), nvml.ErrNotSupported},
		{"with its peers only", say("GPU 00000000:07:00.0 is linked with others by NVLink; reset them together.", 255), nvml.ErrNotSupported},
		{"not root", say("Unable to reset this GPU: Insufficient Permissions", 4), nvml.ErrNoPermission},
		{"not root, by status alone", say("", 4), nvml.ErrNoPermission},
		{
			"lost", say("Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost. Reboot the system to recover this GPU", 15),
			nvml.ErrGPULost,
		},
		{"no such GPU", say("No devices were found", 6), nvml.ErrNotFound},
		{"no driver", say("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9), nvml.ErrDriverNotLoaded},
		{"for another reason", say("", 255), nvml.ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _, d := newInitializedLibrary(t)
			var noted string
			l.config.ResetCommand, noted = fakeNvidiaSMI(t, c.body)
			err := l.Reset(d.UUID)
			if c.want == 0 {
				if err != nil {
					t.Error(err)
				}
			} else {
				requireError(t, err, c.want)
			}
			arguments, err := os.ReadFile(noted)
			if err != nil {
				t.Fatal(err)
			}
			requireEqual(t, string(arguments), "--gpu-reset -i "+d.UUID+"\n")
			if _, _, err := l.MIGMode(d.UUID); err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

func TestResetErrorContainsOutput(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	l.config.ResetCommand, _ = fakeNvidiaSMI(t, "echo In use by another client; exit 255")
	err := l.Reset(d.UUID)
	for _, part := range []string{d.UUID, "In use by another client", "255"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}

func TestResetTimeout(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	l.config.ResetCommand, _ = fakeNvidiaSMI(t, "exec sleep 600")
	l.config.ResetTimeout = 100 * time.Millisecond
	requireError(t, l.Reset(d.UUID), nvml.ErrTimeout)
}

func TestResetWithoutNvidiaSMI(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	l.config.ResetCommand = "/nowhere/nvidia-smi"
	requireError(t, l.Reset(d.UUID), nvml.ErrNotSupported)
}

// The driver's own connection would keep the GPU in use.
func TestResetDisconnects(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	hold := func() gonvml.Return {
		_ = os.WriteFile(held, nil, 0o600)
		return gonvml.SUCCESS
	}
	hold()
	server.InitFunc = hold
	server.ShutdownFunc = func() gonvml.Return {
		_ = os.Remove(held)
		return gonvml.SUCCESS
	}
	l.config.ResetCommand, _ = fakeNvidiaSMI(t, fmt.Sprintf("test ! -e %s || { echo In use by another client; exit 255; }", held))
	if err := l.Reset(d.UUID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(held); err != nil {
		t.Errorf("the driver was not connected again: %v", err)
	}
}

// If the driver does not return, calls are refused until Init.
func TestDriverUnavailableAfterReset(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	l.config.ResetCommand, _ = fakeNvidiaSMI(t, "exit 0")
	server.InitFunc = func() gonvml.Return { return gonvml.ERROR_DRIVER_NOT_LOADED }
	requireError(t, l.Reset(d.UUID), nvml.ErrDriverNotLoaded)
	_, _, err := l.MIGMode(d.UUID)
	requireError(t, err, nvml.ErrUninitialized)
	server.InitFunc = func() gonvml.Return { return gonvml.SUCCESS }
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.MIGMode(d.UUID); err != nil {
		t.Error(err)
	}
}

func TestResetOfUnknownGPU(t *testing.T) {
	l, _, _ := newInitializedLibrary(t)
	var noted string
	l.config.ResetCommand, noted = fakeNvidiaSMI(t, "exit 0")
	for _, uuid := range []string{"", "0", "--help", "MIG-1", "GPU-00000000-0000-0000-0000-000000000000"} {
		requireError(t, l.Reset(uuid), nvml.ErrInvalidArgument)
	}
	if _, err := os.Stat(noted); err == nil {
		t.Error("nvidia-smi was called")
	}
}
