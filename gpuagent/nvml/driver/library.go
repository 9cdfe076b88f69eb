// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// library is nvml.Library on a binding: the real one, or one that tests put there.
type library struct {
	api    gonvml.Interface
	config Config
	// probe looks whether the library can be loaded at all; nil for none.
	probe func() error

	gate    gate
	handles handles
}

var _ nvml.Library = (*library)(nil)

func newLibrary(api gonvml.Interface, config Config) *library {
	return &library{api: api, config: config.complete()}
}

// Init implements nvml.Library.
func (l *library) Init() error {
	release, err := l.gate.alone(patience)
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
	err := guarded("nvmlInit", func() error { return answer("nvmlInit", l.api.Init()) })
	if err != nil && !errors.Is(err, alreadyInitialised) {
		return err
	}
	l.handles.forget()
	l.gate.open = true
	return nil
}

// Shutdown implements nvml.Library.
func (l *library) Shutdown() error {
	release, err := l.gate.alone(patience)
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
	l.handles.forget()
	return guarded("nvmlShutdown", func() error { return answer("nvmlShutdown", l.api.Shutdown()) })
}

// DriverVersion implements nvml.Library.
func (l *library) DriverVersion() (string, error) {
	leave, err := l.gate.enter()
	if err != nil {
		return "", err
	}
	defer leave()
	return ask(l, "nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion)
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
