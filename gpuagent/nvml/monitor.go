// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// MonitoredLibrary forwards calls to a driver, times them, and reports calls that do not return. It
// cannot cancel a call: a process that waits for a broken driver has to be ended from outside.
type MonitoredLibrary struct {
	// Driver receives the calls.
	Driver Library
	// OnReturn receives each call that returned, with its duration and its error. It may be nil.
	OnReturn func(call string, took time.Duration, err error)
	// Now returns machine time. Default: time.Now.
	Now func() time.Time

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]pendingCall
}

var _ Library = (*MonitoredLibrary)(nil)

type pendingCall struct {
	call string
	at   time.Time
}

// HungCall returns an error that names the oldest call in progress if it has taken longer than limit.
// The error is the same for the whole call, so that a status with it changes only once.
func (l *MonitoredLibrary) HungCall(limit time.Duration) error {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest pendingCall
	for _, each := range l.pending {
		if oldest.at.IsZero() || each.at.Before(oldest.at) {
			oldest = each
		}
	}
	if oldest.at.IsZero() || now.Sub(oldest.at) <= limit {
		return nil
	}
	return fmt.Errorf("the driver has not answered the call %s since %s: "+
		"look for Xid errors in the kernel log (dmesg); the node may need a reboot",
		oldest.call, oldest.at.UTC().Format(time.RFC3339))
}

func (l *MonitoredLibrary) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// start records the start of a call and returns a function that records its return.
func (l *MonitoredLibrary) start(call string) (done func(error)) {
	at := l.now()
	l.mu.Lock()
	l.lastID++
	id := l.lastID
	if l.pending == nil {
		l.pending = map[uint64]pendingCall{}
	}
	l.pending[id] = pendingCall{call, at}
	l.mu.Unlock()
	return func(err error) {
		l.mu.Lock()
		delete(l.pending, id)
		l.mu.Unlock()
		if l.OnReturn != nil {
			l.OnReturn(call, l.now().Sub(at), err)
		}
	}
}

func (l *MonitoredLibrary) monitor(call string, do func() error) error {
	done := l.start(call)
	err := do()
	done(err)
	return err
}

func monitorResult[T any](l *MonitoredLibrary, call string, do func() (T, error)) (T, error) {
	done := l.start(call)
	result, err := do()
	done(err)
	return result, err
}

// Init implements [Library].
func (l *MonitoredLibrary) Init() error { return l.monitor("Init", l.Driver.Init) }

// Shutdown implements [Library].
func (l *MonitoredLibrary) Shutdown() error { return l.monitor("Shutdown", l.Driver.Shutdown) }

// DriverVersion implements [Library].
func (l *MonitoredLibrary) DriverVersion() (string, error) {
	return monitorResult(l, "DriverVersion", l.Driver.DriverVersion)
}

// GPUs implements [Library].
func (l *MonitoredLibrary) GPUs() ([]GPU, error) { return monitorResult(l, "GPUs", l.Driver.GPUs) }

// Memory implements [Library].
func (l *MonitoredLibrary) Memory(gpu string) (Memory, error) {
	return monitorResult(l, "Memory", func() (Memory, error) { return l.Driver.Memory(gpu) })
}

// Utilization implements [Library].
func (l *MonitoredLibrary) Utilization(gpu string) (int, error) {
	return monitorResult(l, "Utilization", func() (int, error) { return l.Driver.Utilization(gpu) })
}

// Processes implements [Library].
func (l *MonitoredLibrary) Processes(gpu string) ([]Process, error) {
	return monitorResult(l, "Processes", func() ([]Process, error) { return l.Driver.Processes(gpu) })
}

// ProcessUtilization implements [Library].
func (l *MonitoredLibrary) ProcessUtilization(gpu string, since time.Time) ([]ProcessSample, error) {
	return monitorResult(l, "ProcessUtilization", func() ([]ProcessSample, error) { return l.Driver.ProcessUtilization(gpu, since) })
}

// InstanceUtilization implements [Library].
func (l *MonitoredLibrary) InstanceUtilization(gpu string, instance uint32) (int, error) {
	return monitorResult(l, "InstanceUtilization", func() (int, error) { return l.Driver.InstanceUtilization(gpu, instance) })
}

// MIGMode implements [Library].
func (l *MonitoredLibrary) MIGMode(gpu string) (current, pending Mode, err error) {
	err = l.monitor("MIGMode", func() (err error) {
		current, pending, err = l.Driver.MIGMode(gpu)
		return err
	})
	return current, pending, err
}

// SetMIGMode implements [Library].
func (l *MonitoredLibrary) SetMIGMode(gpu string, mode Mode) (activation, err error) {
	done := l.start("SetMIGMode")
	activation, err = l.Driver.SetMIGMode(gpu, mode)
	done(errors.Join(activation, err))
	return activation, err
}

// Reset implements [Library].
func (l *MonitoredLibrary) Reset(gpu string) error {
	return l.monitor("Reset", func() error { return l.Driver.Reset(gpu) })
}

// Profiles implements [Library].
func (l *MonitoredLibrary) Profiles(gpu string) ([]Profile, error) {
	return monitorResult(l, "Profiles", func() ([]Profile, error) { return l.Driver.Profiles(gpu) })
}

// Placements implements [Library].
func (l *MonitoredLibrary) Placements(gpu string, profile ProfileID) ([]Placement, error) {
	return monitorResult(l, "Placements", func() ([]Placement, error) { return l.Driver.Placements(gpu, profile) })
}

// RemainingCapacity implements [Library].
func (l *MonitoredLibrary) RemainingCapacity(gpu string, profile ProfileID) (int, error) {
	return monitorResult(l, "RemainingCapacity", func() (int, error) { return l.Driver.RemainingCapacity(gpu, profile) })
}

// Instances implements [Library].
func (l *MonitoredLibrary) Instances(gpu string) ([]Instance, error) {
	return monitorResult(l, "Instances", func() ([]Instance, error) { return l.Driver.Instances(gpu) })
}

// CreateInstance implements [Library].
func (l *MonitoredLibrary) CreateInstance(gpu string, profile ProfileID, at Placement) (Instance, error) {
	return monitorResult(l, "CreateInstance", func() (Instance, error) { return l.Driver.CreateInstance(gpu, profile, at) })
}

// DestroyInstance implements [Library].
func (l *MonitoredLibrary) DestroyInstance(gpu string, instance uint32) error {
	return l.monitor("DestroyInstance", func() error { return l.Driver.DestroyInstance(gpu, instance) })
}

// ComputeInstances implements [Library].
func (l *MonitoredLibrary) ComputeInstances(gpu string, instance uint32) ([]ComputeInstance, error) {
	return monitorResult(l, "ComputeInstances", func() ([]ComputeInstance, error) { return l.Driver.ComputeInstances(gpu, instance) })
}

// CreateComputeInstance implements [Library].
func (l *MonitoredLibrary) CreateComputeInstance(gpu string, instance uint32) (ComputeInstance, error) {
	return monitorResult(l, "CreateComputeInstance", func() (ComputeInstance, error) { return l.Driver.CreateComputeInstance(gpu, instance) })
}

// DestroyComputeInstance implements [Library].
func (l *MonitoredLibrary) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	return l.monitor("DestroyComputeInstance", func() error { return l.Driver.DestroyComputeInstance(gpu, instance, compute) })
}
