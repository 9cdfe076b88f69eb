// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
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

	// idleTimeout is how long Init, Shutdown and Reset wait for calls that have not
	// returned: a GPU that is broken may keep one for ever.
	idleTimeout = 30 * time.Second
)

// New is the driver of this node. Nothing is loaded before Init.
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

// library is nvml.Library on a binding: the real one, or one that tests put there.
type library struct {
	api    gonvml.Interface
	config Config
	// probe looks whether the library can be loaded at all; nil for none.
	probe func() error

	gate    callGate
	handles handleCache
}

var _ nvml.Library = (*library)(nil)

func newLibrary(api gonvml.Interface, config Config) *library {
	return &library{api: api, config: config.withDefaults()}
}

// Init implements nvml.Library.
func (l *library) Init() error {
	release, err := l.gate.acquireExclusive(idleTimeout)
	if err != nil {
		return fmt.Errorf("connecting to the driver: %w", err)
	}
	defer release()
	if l.gate.open {
		return nil
	}
	return l.connect()
}

// connect is called by who has the gate alone.
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
	l.gate.open = true
	return nil
}

// Shutdown implements nvml.Library.
func (l *library) Shutdown() error {
	release, err := l.gate.acquireExclusive(idleTimeout)
	if err != nil {
		return fmt.Errorf("disconnecting from the driver: %w", err)
	}
	defer release()
	if !l.gate.open {
		return nvml.ErrUninitialized
	}
	return l.disconnect()
}

// disconnect is called by who has the gate alone. Calls that come after it are
// refused also where it fails: the library may be gone.
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

// probe loads the library and looks for the function that every version of it has.
// The binding tells neither why a library cannot be loaded nor that it is another one:
// its first call would end the process.
func probe(path string) error {
	library := dl.New(path, dl.RTLD_LAZY)
	if err := library.Open(); err != nil {
		return fmt.Errorf("loading the driver's library: %w: %w", nvml.ErrLibraryNotFound, err)
	}
	defer func() { _ = library.Close() }()
	if err := library.Lookup("nvmlInit_v2"); err != nil {
		return fmt.Errorf("%s is not the driver's library: %w: %w", path, nvml.ErrLibraryNotFound, err)
	}
	return nil
}

// alreadyInitialized is what nvmlInit says where there is nothing left to do.
const alreadyInitialized = nvml.Error(gonvml.ERROR_ALREADY_INITIALIZED)

// callValue makes one call that answers with a value.
func callValue[T any](l *library, function string, call func() (T, gonvml.Return)) (value T, err error) {
	err = l.call(function, func() (ret gonvml.Return) {
		value, ret = call()
		return ret
	})
	return value, err
}

// call makes one call. A function that the library lacks is not called: the dynamic
// loader would end the process. A panic of the binding becomes ErrUnknown: the call's
// effect is not known.
func (l *library) call(function string, call func() gonvml.Return) error {
	return recoverPanic(function, func() error {
		if err := l.api.Extensions().LookupSymbol(function); err != nil {
			return fmt.Errorf("this version of the driver's library has no %s: %w", function, nvml.ErrNotSupported)
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

// toError is a function's answer as an error; nil for success.
func toError(function string, ret gonvml.Return) error {
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
