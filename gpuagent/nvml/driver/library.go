// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// Config locates the driver's parts.
type Config struct {
	// Path is the library's file, or its name for the dynamic loader. Default: libnvidia-ml.so.1.
	Path string
	// ResetCommand is the nvidia-smi that resets GPUs: a path, or a name on PATH. Default:
	// nvidia-smi.
	ResetCommand string
	// ResetTimeout limits a reset. Default: two minutes.
	ResetTimeout time.Duration
}

const (
	defaultPath         = "libnvidia-ml.so.1"
	defaultResetCommand = "nvidia-smi"
	defaultResetTimeout = 2 * time.Minute

	// idleTimeout is the time for which Init, Shutdown and Reset wait for calls in progress. On a broken GPU
	// a call may never return.
	idleTimeout = 30 * time.Second
)

// New returns the driver of this node. It loads nothing before Init.
func New(config Config) nvml.Library {
	config = config.withDefaults()
	l := newLibrary(gonvml.New(gonvml.WithLibraryPath(config.Path)), config)
	l.probe = func() error { return probe(config.Path) }
	return l
}

func (c Config) withDefaults() Config {
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

// library implements nvml.Library with a binding: the real one, or a test's.
type library struct {
	api    gonvml.Interface
	config Config
	// probe checks whether the library can be loaded; nil skips the check.
	probe func() error

	gate    callGate
	handles handleCache
	// functions has the names of the functions that the loaded library is known to have: the dynamic loader takes
	// longer to find one than many a call of it.
	functions sync.Map
}

var _ nvml.Library = (*library)(nil)

func newLibrary(api gonvml.Interface, config Config) *library {
	return &library{api: api, config: config.withDefaults()}
}

// Init implements nvml.Library.
func (l *library) Init() error {
	release, err := l.gate.acquireExclusive(idleTimeout)
	if err != nil {
		return fmt.Errorf("connect to the driver: %w", err)
	}
	defer release()
	if l.gate.open {
		return nil
	}
	return l.connect()
}

// connect requires exclusive access to the gate.
func (l *library) connect() error {
	if l.probe != nil {
		if err := l.probe(); err != nil {
			return err
		}
	}
	err := recoverPanic("nvmlInit", func() error { return toError("nvmlInit", l.api.Init()) })
	if err != nil && !errors.Is(err, alreadyInitialized) {
		return err
	}
	l.handles.invalidate()
	l.functions.Clear()
	l.gate.open = true
	return nil
}

// Shutdown implements nvml.Library.
func (l *library) Shutdown() error {
	release, err := l.gate.acquireExclusive(idleTimeout)
	if err != nil {
		return fmt.Errorf("disconnect from the driver: %w", err)
	}
	defer release()
	if !l.gate.open {
		return nvml.ErrUninitialized
	}
	return l.disconnect()
}

// disconnect requires exclusive access to the gate. Even after a failure it closes the gate: the
// library may be unloaded.
func (l *library) disconnect() error {
	l.gate.open = false
	l.handles.invalidate()
	return recoverPanic("nvmlShutdown", func() error { return toError("nvmlShutdown", l.api.Shutdown()) })
}

// DriverVersion implements nvml.Library.
func (l *library) DriverVersion() (string, error) {
	leave, err := l.gate.enter()
	if err != nil {
		return "", err
	}
	defer leave()
	return callValue(l, "nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion)
}

// probe loads the library and looks up a function that every version has. The binding neither
// reports why a library cannot be loaded nor detects a wrong one: its first call would end the
// process.
func probe(path string) error {
	library := dl.New(path, dl.RTLD_LAZY)
	if err := library.Open(); err != nil {
		return fmt.Errorf("load the driver's library: %w: %w", nvml.ErrLibraryNotFound, err)
	}
	defer func() { _ = library.Close() }()
	if err := library.Lookup("nvmlInit_v2"); err != nil {
		return fmt.Errorf("%s is not the driver's library: %w: %w", path, nvml.ErrLibraryNotFound, err)
	}
	return nil
}

// alreadyInitialized is nvmlInit's result if the library is initialized.
const alreadyInitialized = nvml.Error(gonvml.ERROR_ALREADY_INITIALIZED)

// callValue makes a call that returns a value.
func callValue[T any](l *library, function string, call func() (T, gonvml.Return)) (value T, err error) {
	err = l.call(function, func() (ret gonvml.Return) {
		value, ret = call()
		return ret
	})
	return value, err
}

// call makes one call. It does not call a function that the library lacks: the dynamic loader would
// end the process. It returns ErrUnknown after a panic of the binding, since the call's effect is
// unknown.
func (l *library) call(function string, call func() gonvml.Return) error {
	return recoverPanic(function, func() error {
		if _, known := l.functions.Load(function); !known {
			if err := l.api.Extensions().LookupSymbol(function); err != nil {
				return fmt.Errorf("this version of the driver's library has no %s: %w", function, nvml.ErrNotSupported)
			}
			l.functions.Store(function, nil)
		}
		return toError(function, call())
	})
}

func recoverPanic(function string, call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%s: the binding failed: %v: %w", function, reason, nvml.ErrUnknown)
		}
	}()
	return call()
}

// toError converts a function's result; nil for success.
func toError(function string, ret gonvml.Return) error {
	switch ret {
	case gonvml.SUCCESS:
		return nil
	case gonvml.ERROR_FUNCTION_NOT_FOUND, gonvml.ERROR_ARGUMENT_VERSION_MISMATCH, gonvml.ERROR_DEPRECATED:
		return fmt.Errorf("%s: the library or the driver lacks it (%d): %w", function, uint32(ret), nvml.ErrNotSupported)
	case gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%s: the loaded library does not match the driver, which was replaced; restart the agent: %w", function,
			nvml.ErrDriverNotLoaded)
	default:
		return fmt.Errorf("%s: %w", function, nvml.Error(ret))
	}
}
