// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ErrDevicePluginNotFound reports that no process of the device plugin is ready for SIGHUP.
var ErrDevicePluginNotFound = errors.New("no process of the device plugin was found")

// DevicePlugin finds the processes of NVIDIA's device plugin. The plugin enumerates its devices only
// when it starts, when the kubelet restarts, or on SIGHUP.
type DevicePlugin struct {
	// Proc is the root of the host's procfs.
	Proc string
	// Command is the start of the plugin's command line, the program without its folder.
	Command string
}

// Reload makes each process of the plugin enumerate its devices again, and returns how many it signaled.
// It returns [ErrDevicePluginNotFound] if no process runs or none is ready: try again then.
func (d *DevicePlugin) Reload() (signaled int, err error) {
	all, err := listProcesses(d.Proc)
	if err != nil {
		return 0, err
	}
	var notReady []string
	var errs []error
	for _, each := range all {
		switch sent, deaf, err := d.signal(each); {
		case sent:
			signaled++
		case deaf:
			notReady = append(notReady, strconv.Itoa(each.PID))
		case err != nil:
			errs = append(errs, fmt.Errorf("process %d: %w", each.PID, err))
		}
	}
	switch {
	case len(errs) > 0:
		return signaled, fmt.Errorf("reload device plugin: %w", errors.Join(errs...))
	case signaled > 0:
		return signaled, nil
	case len(notReady) > 0:
		return 0, fmt.Errorf("%w: process %s has no handler for SIGHUP (yet)", ErrDevicePluginNotFound, strings.Join(notReady, ", "))
	}
	return 0, fmt.Errorf("%w below %s: no command line begins with %q", ErrDevicePluginNotFound, d.Proc, d.Command)
}

// signal sends SIGHUP to a process of the plugin. It reports deaf for one without a handler, and nothing
// for other processes and those that end meanwhile.
func (d *DevicePlugin) signal(each procfs.Proc) (sent, deaf bool, err error) {
	p, err := pinProcess(d.Proc, each.PID)
	if err != nil {
		return false, false, nil
	}
	defer p.Close()
	words, err := readCommand(d.Proc, each)
	if command := strings.Fields(d.Command); err != nil || len(command) == 0 || !slices.Equal(words[:min(len(words), len(command))], command) {
		return false, false, nil
	}
	ready, err := p.handlesSIGHUP()
	if err != nil || !ready {
		return false, err == nil, ignoreProcessGone(err)
	}
	err = p.sendSIGHUP()
	return err == nil, false, ignoreProcessGone(err)
}

// ignoreProcessGone returns nil for the errors of a process that ended.
func ignoreProcessGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
