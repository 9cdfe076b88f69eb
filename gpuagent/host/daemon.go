// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ErrDaemonNotFound reports that no process of a daemon is ready for SIGHUP.
var ErrDaemonNotFound = errors.New("no process was found")

// Daemon finds the processes of a program that enumerates MIG devices when it starts and on SIGHUP only:
// NVIDIA's device plugin, or dcgm-exporter.
type Daemon struct {
	// Name is the program's name in errors.
	Name string
	// Proc is the root of the host's procfs.
	Proc string
	// Command is the start of the program's command line, the program without its folder.
	Command string
}

// Reload makes each process of the daemon enumerate the devices again, and returns how many it signaled. It
// returns [ErrDaemonNotFound] if no process runs or none is ready.
func (d *Daemon) Reload() (signaled int, err error) {
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
		return signaled, fmt.Errorf("reload %s: %w", d.Name, errors.Join(errs...))
	case signaled > 0:
		return signaled, nil
	case len(notReady) > 0:
		return 0, fmt.Errorf("reload %s: %w: process %s has no handler for SIGHUP (yet)", d.Name, ErrDaemonNotFound, strings.Join(notReady, ", "))
	}
	return 0, fmt.Errorf("reload %s: %w below %s: no command line begins with %q", d.Name, ErrDaemonNotFound, d.Proc, d.Command)
}

// signal sends SIGHUP to a process of the daemon. It reports deaf for one without a handler, and nothing
// for other processes and those that end meanwhile.
func (d *Daemon) signal(each procfs.Proc) (sent, deaf bool, err error) {
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

// pinnedProcess is a process whose folder in procfs is open. A signal through the folder reaches this
// process or none, even if its PID was given to another process since.
type pinnedProcess struct{ folder *os.File }

func pinProcess(root string, pid int) (*pinnedProcess, error) {
	folder, err := os.OpenFile(filepath.Join(root, strconv.Itoa(pid)), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &pinnedProcess{folder: folder}, nil
}

func (p *pinnedProcess) Close() { _ = p.folder.Close() }

// status returns a field of the process's status file, or an error if the process ended.
func (p *pinnedProcess) status(field string) (string, error) {
	fd, err := unix.Openat(int(p.folder.Fd()), "status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: filepath.Join(p.folder.Name(), "status"), Err: err}
	}
	file := os.NewFile(uintptr(fd), "status")
	defer file.Close()
	raw, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(text), nil
		}
	}
	return "", fmt.Errorf("its status lacks the field %s", field)
}

// handlesSIGHUP reports whether the process has a handler for SIGHUP. Without one, SIGHUP ends it.
func (p *pinnedProcess) handlesSIGHUP() (bool, error) {
	mask, err := p.status("SigCgt")
	if err != nil {
		return false, err
	}
	caught, err := strconv.ParseUint(mask, 16, 64)
	return caught&(1<<(unix.SIGHUP-1)) != 0, err
}

// sendSIGHUP sends SIGHUP. If it succeeds, the process kept its PID until now, so that a command line
// read by this PID since pinProcess was the process's own.
func (p *pinnedProcess) sendSIGHUP() error {
	err := sendSignal(int(p.folder.Fd()), unix.SIGHUP)
	if errors.Is(err, unix.ENOSYS) {
		return p.killByPID()
	}
	return err
}

// killByPID sends SIGHUP on kernels before 5.1, where the PID may pass to another process
// between the two calls.
func (p *pinnedProcess) killByPID() error {
	text, err := p.status("Pid")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 1 {
		return fmt.Errorf("%q is not the PID of a process: %w", text, syscall.EINVAL)
	}
	return unix.Kill(pid, unix.SIGHUP)
}
