// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin makes the NVIDIA device plugin enumerate its devices again, which it
// does by itself only when it starts or the kubelet does.
//
// Enters: the host's procfs, and how the plugin's command line begins. Leaves: a
// SIGHUP to its processes, and how many there are.
//
// It never signals a process that has no handler for SIGHUP, which would end it: that
// one is passed over, and said to be.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrDevicePluginNotFound is that no process of the device plugin runs that could be told.
var ErrDevicePluginNotFound = errors.New("no process of the device plugin was found")

// DevicePlugin finds the device plugin's processes.
type DevicePlugin struct {
	// Proc is the root of the host's procfs.
	Proc string
	// Command is how the plugin's command line begins, the program without its folder.
	Command string
}

// Reload has each of the plugin's processes enumerate its devices again, and returns
// how many there are. [ErrNotFound] where there is none, or none that is ready for
// it: try again then.
func (f *DevicePlugin) Reload() (int, error) {
	names, err := ProcessIDs(f.Proc)
	if err != nil {
		return 0, err
	}
	told := 0
	var notReady []string
	var errs []error
	for _, name := range names {
		switch done, deaf, err := f.signal(name); {
		case done:
			told++
		case deaf:
			notReady = append(notReady, name)
		case err != nil:
			errs = append(errs, fmt.Errorf("process %s: %w", name, err))
		}
	}
	switch {
	case len(errs) > 0:
		return told, fmt.Errorf("telling the device plugin to look again: %w", errors.Join(errs...))
	case told > 0:
		return told, nil
	case len(notReady) > 0:
		return 0, fmt.Errorf("%w: process %s does not catch SIGHUP (yet)", ErrDevicePluginNotFound, strings.Join(notReady, ", "))
	}
	return 0, fmt.Errorf("%w below %s: none has a command line that begins with %q", ErrDevicePluginNotFound, f.Proc, f.Command)
}

// signal sends the signal to one process if it is the plugin's. One that ends meanwhile
// is none.
func (f *DevicePlugin) signal(name string) (done, deaf bool, err error) {
	p, err := OpenProcess(f.Proc, name)
	if err != nil {
		return false, false, nil
	}
	defer p.Close()
	words, err := p.Command()
	if err != nil || !hasPrefixWords(words, strings.Fields(f.Command)) {
		return false, false, nil
	}
	ready, err := p.HandlesSIGHUP()
	if err != nil || !ready {
		return false, err == nil, ignoreProcessGone(err)
	}
	err = p.SendSIGHUP()
	return err == nil, false, ignoreProcessGone(err)
}

func hasPrefixWords(words, with []string) bool {
	if len(with) == 0 || len(words) < len(with) {
		return false
	}
	for i := range with {
		if words[i] != with[i] {
			return false
		}
	}
	return true
}

// ignoreProcessGone leaves out the errors of a process that has ended.
func ignoreProcessGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
