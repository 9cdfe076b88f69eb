// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watched is a driver whose calls are timed, and that tells of one that does
// not return.
//
// Enters: the calls of the agent. Leaves: the same calls to the real driver, how long
// each took, and whether one is stuck.
//
// It never gives a call up, which nobody can: a process that waits for a broken driver
// has to be ended from outside.
package nvml

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// MonitoredLibrary is a driver whose calls are watched.
type MonitoredLibrary struct {
	// Driver is the real one.
	Driver Library
	// Monitor knows its calls.
	Monitor *CallMonitor
}

var _ Library = MonitoredLibrary{}

// monitor is a call without an answer, ask one with an answer.
func (l MonitoredLibrary) monitor(call string, do func() error) error {
	done := l.Monitor.start(call)
	err := do()
	done(err)
	return err
}

func monitorResult[T any](l MonitoredLibrary, call string, do func() (T, error)) (T, error) {
	done := l.Monitor.start(call)
	answer, err := do()
	done(err)
	return answer, err
}

// Init implements [nvml.Library], as do the others.
func (l MonitoredLibrary) Init() error { return l.monitor("Init", l.Driver.Init) }

// Shutdown implements [nvml.Library].
func (l MonitoredLibrary) Shutdown() error { return l.monitor("Shutdown", l.Driver.Shutdown) }

// DriverVersion implements [nvml.Library].
func (l MonitoredLibrary) DriverVersion() (string, error) {
	return monitorResult(l, "DriverVersion", l.Driver.DriverVersion)
}

// GPUs implements [nvml.Library].
func (l MonitoredLibrary) GPUs() ([]GPU, error) { return monitorResult(l, "GPUs", l.Driver.GPUs) }

// Memory implements [nvml.Library].
func (l MonitoredLibrary) Memory(gpu string) (Memory, error) {
	return monitorResult(l, "Memory", func() (Memory, error) { return l.Driver.Memory(gpu) })
}

// Utilization implements [nvml.Library].
func (l MonitoredLibrary) Utilization(gpu string) (int, error) {
	return monitorResult(l, "Utilization", func() (int, error) { return l.Driver.Utilization(gpu) })
}

// Processes implements [nvml.Library].
func (l MonitoredLibrary) Processes(gpu string) ([]Process, error) {
	return monitorResult(l, "Processes", func() ([]Process, error) { return l.Driver.Processes(gpu) })
}

// ProcessUtilization implements [nvml.Library].
func (l MonitoredLibrary) ProcessUtilization(gpu string, since time.Time) ([]ProcessSample, error) {
	return monitorResult(l, "ProcessUtilization", func() ([]ProcessSample, error) { return l.Driver.ProcessUtilization(gpu, since) })
}

// MIGMode implements [nvml.Library].
func (l MonitoredLibrary) MIGMode(gpu string) (current, pending Mode, err error) {
	err = l.monitor("MIGMode", func() (err error) {
		current, pending, err = l.Driver.MIGMode(gpu)
		return err
	})
	return current, pending, err
}

// SetMIGMode implements [nvml.Library].
func (l MonitoredLibrary) SetMIGMode(gpu string, mode Mode) (activation, err error) {
	done := l.Monitor.start("SetMIGMode")
	activation, err = l.Driver.SetMIGMode(gpu, mode)
	done(errors.Join(activation, err))
	return activation, err
}

// Reset implements [nvml.Library].
func (l MonitoredLibrary) Reset(gpu string) error {
	return l.monitor("Reset", func() error { return l.Driver.Reset(gpu) })
}

// Profiles implements [nvml.Library].
func (l MonitoredLibrary) Profiles(gpu string) ([]Profile, error) {
	return monitorResult(l, "Profiles", func() ([]Profile, error) { return l.Driver.Profiles(gpu) })
}

// Placements implements [nvml.Library].
func (l MonitoredLibrary) Placements(gpu string, profile ProfileID) ([]Placement, error) {
	return monitorResult(l, "Placements", func() ([]Placement, error) { return l.Driver.Placements(gpu, profile) })
}

// RemainingCapacity implements [nvml.Library].
func (l MonitoredLibrary) RemainingCapacity(gpu string, profile ProfileID) (int, error) {
	return monitorResult(l, "RemainingCapacity", func() (int, error) { return l.Driver.RemainingCapacity(gpu, profile) })
}

// Instances implements [nvml.Library].
func (l MonitoredLibrary) Instances(gpu string) ([]Instance, error) {
	return monitorResult(l, "Instances", func() ([]Instance, error) { return l.Driver.Instances(gpu) })
}

// CreateInstance implements [nvml.Library].
func (l MonitoredLibrary) CreateInstance(gpu string, profile ProfileID, at Placement) (Instance, error) {
	return monitorResult(l, "CreateInstance", func() (Instance, error) { return l.Driver.CreateInstance(gpu, profile, at) })
}

// DestroyInstance implements [nvml.Library].
func (l MonitoredLibrary) DestroyInstance(gpu string, instance uint32) error {
	return l.monitor("DestroyInstance", func() error { return l.Driver.DestroyInstance(gpu, instance) })
}

// ComputeInstances implements [nvml.Library].
func (l MonitoredLibrary) ComputeInstances(gpu string, instance uint32) ([]ComputeInstance, error) {
	return monitorResult(l, "ComputeInstances", func() ([]ComputeInstance, error) { return l.Driver.ComputeInstances(gpu, instance) })
}

// CreateComputeInstance implements [nvml.Library].
func (l MonitoredLibrary) CreateComputeInstance(gpu string, instance uint32) (ComputeInstance, error) {
	return monitorResult(l, "CreateComputeInstance", func() (ComputeInstance, error) { return l.Driver.CreateComputeInstance(gpu, instance) })
}

// DestroyComputeInstance implements [nvml.Library].
func (l MonitoredLibrary) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	return l.monitor("DestroyComputeInstance", func() error { return l.Driver.DestroyComputeInstance(gpu, instance, compute) })
}

// CallMonitor knows the calls of a driver that have not returned yet.
type CallMonitor struct {
	// OnReturn is told of each call that returned: its name, how long it took and what
	// came of it. May be nil.
	OnReturn func(call string, took time.Duration, err error)
	// Now is machine time. Default: time.Now.
	Now func() time.Time

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]pendingCall
}

type pendingCall struct {
	call string
	at   time.Time
}

func (w *CallMonitor) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// start notes that a call begins; what it returns, that it returned.
func (w *CallMonitor) start(call string) func(error) {
	at := w.now()
	w.mu.Lock()
	w.lastID++
	id := w.lastID
	if w.pending == nil {
		w.pending = map[uint64]pendingCall{}
	}
	w.pending[id] = pendingCall{call, at}
	w.mu.Unlock()
	return func(err error) {
		w.mu.Lock()
		delete(w.pending, id)
		w.mu.Unlock()
		if w.OnReturn != nil {
			w.OnReturn(call, w.now().Sub(at), err)
		}
	}
}

// HungCall is an error that names the oldest call which has not returned for longer than
// that; nil where there is none.
func (w *CallMonitor) HungCall(longer time.Duration) error {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var oldest pendingCall
	for _, each := range w.pending {
		if oldest.at.IsZero() || each.at.Before(oldest.at) {
			oldest = each
		}
	}
	if waited := now.Sub(oldest.at); !oldest.at.IsZero() && waited > longer {
		// Since when, not for how long: who writes this down shall not write it anew each time.
		return fmt.Errorf("the driver has not answered the call %s since %s: look for Xid errors in the kernel's log (dmesg); the node may have to be booted",
			oldest.call, oldest.at.UTC().Format(time.RFC3339))
	}
	return nil
}
