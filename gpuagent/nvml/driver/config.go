// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// Config says where the driver's parts are.
type Config struct {
	// Path is the library's file, or its name for the dynamic loader. Empty:
	// libnvidia-ml.so.1.
	Path string
	// ResetCommand is the nvidia-smi that resets GPUs: a path, or a name on PATH.
	// Empty: nvidia-smi.
	ResetCommand string
	// ResetTimeout is how long a reset may take. Zero: two minutes.
	ResetTimeout time.Duration
}

const (
	defaultPath         = "libnvidia-ml.so.1"
	defaultResetCommand = "nvidia-smi"
	defaultResetTimeout = 2 * time.Minute

	// patience is how long Init, Shutdown and Reset wait for calls that have not
	// returned: a GPU that is broken may keep one for ever.
	patience = 30 * time.Second
)

// New is the driver of this node. Nothing is loaded before Init.
func New(config Config) nvml.Library {
	config = config.complete()
	l := newLibrary(gonvml.New(gonvml.WithLibraryPath(config.Path)), config)
	l.probe = func() error { return probe(config.Path) }
	return l
}

func (c Config) complete() Config {
	if c.Path == "" {
		c.Path = defaultPath
	}
	if c.ResetCommand == "" {
		c.ResetCommand = defaultResetCommand
	}
	if c.ResetTimeout == 0 {
		c.ResetTimeout = defaultResetTimeout
	}
	return c
}
