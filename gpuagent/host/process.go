// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procfs reads the processes of the host that a node's agent has to know, and
// the identity of its boot.
//
// Enters: the root of the host's procfs. Leaves: command lines, and a SIGHUP where one
// is asked for. A process is held by its open folder between its choice and the
// signal, so that no other can take its number meanwhile.
//
// It never lists what processes do, never sends another signal, and never waits for a
// process that hangs.
package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessIDs are the names of the folders of the processes that run.
func ProcessIDs(root string) (names []string, err error) {
	folder, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	defer folder.Close()
	all, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	for _, name := range all {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// RunningProcess is a process that runs.
type RunningProcess struct {
	// Command is its command line, the program without its folder.
	Command []string
	// CGroup is the text of its cgroup file; empty where it cannot be read.
	CGroup string
}

// RunningProcesses are the processes that run and have a command line. Those that end meanwhile
// are left out.
func RunningProcesses(root string) ([]RunningProcess, error) {
	names, err := ProcessIDs(root)
	if err != nil {
		return nil, err
	}
	var commands []RunningProcess
	for _, name := range names {
		p, err := OpenProcess(root, name)
		if err != nil {
			continue
		}
		if words, err := p.Command(); err == nil && len(words) > 0 {
			cgroup, _ := p.read("cgroup") // of none that is known, then
			commands = append(commands, RunningProcess{Command: words, CGroup: string(cgroup)})
		}
		p.Close()
	}
	return commands, nil
}

// BootID is the identity of the machine's present boot.
func BootID(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", errors.New("which boot this is: boot_id is empty")
	}
	return id, nil
}

// maxProcfsBytes is as much as is read of a file in procfs, in bytes.
const maxProcfsBytes = 64 << 10

// ProcessHandle is one whose folder in procfs is open: what is read below it, and signaled
// by it, is this process or none.
type ProcessHandle struct{ folder *os.File }

// OpenProcess opens a process's folder below the root of a procfs.
func OpenProcess(root, name string) (*ProcessHandle, error) {
	folder, err := os.OpenFile(filepath.Join(root, name), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &ProcessHandle{folder: folder}, nil
}

// Close lets go of the process.
func (p *ProcessHandle) Close() { _ = p.folder.Close() }

func (p *ProcessHandle) read(file string) ([]byte, error) {
	f, err := p.open(file)
	if err != nil {
		return nil, err
	}
	return readAll(f)
}

func (p *ProcessHandle) open(file string) (*os.File, error) {
	fd, err := unix.Openat(int(p.folder.Fd()), file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(p.folder.Name(), file), Err: err}
	}
	return os.NewFile(uintptr(fd), file), nil
}

func readAll(f *os.File) ([]byte, error) {
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxProcfsBytes))
}

// Command are the words of its command line, its program without the folder; none of a
// kernel thread, or of one that has ended and is still counted. It is an error wrapping
// [ErrStuck] where the kernel does not tell.
func (p *ProcessHandle) Command() ([]string, error) {
	raw, err := p.readWithTimeout("cmdline", readTimeout)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	words := strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
	words[0] = filepath.Base(words[0])
	return words, nil
}

// HandlesSIGHUP tells whether it has a handler for SIGHUP; without one it would end.
func (p *ProcessHandle) HandlesSIGHUP() (bool, error) {
	raw, err := p.read("status")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(raw)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return caught&(1<<(unix.SIGHUP-1)) != 0, err
		}
	}
	return false, errors.New("its status does not say which signals it catches")
}

// SendSIGHUP sends SIGHUP. A folder of procfs stands for the process that it was opened
// for, whatever becomes of its number.
func (p *ProcessHandle) SendSIGHUP() error {
	err := unix.PidfdSendSignal(int(p.folder.Fd()), unix.SIGHUP, nil, 0)
	if errors.Is(err, unix.ENOSYS) {
		return p.killByPID()
	}
	return err
}

// killByPID is for kernels before 5.1: as its folder can still be read, the
// number is still its own but for the moment in between.
func (p *ProcessHandle) killByPID() error {
	raw, err := p.read("status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil || pid <= 1 {
				return fmt.Errorf("%q is no process's number: %w", strings.TrimSpace(text), syscall.EINVAL)
			}
			return unix.Kill(pid, unix.SIGHUP)
		}
	}
	return errors.New("its status does not say its number")
}

// ErrReadTimeout is that the kernel has not told something of a process in time. A command line
// lies in the process's own memory: reading it waits for one that hangs in a driver with
// its memory locked, as those on a broken GPU do, and then for ever.
var ErrReadTimeout = errors.New("it does not let its memory be read")

// readTimeout is for how long one process is waited for.
const readTimeout = 2 * time.Second

// pendingReads are the files that are still being read though nobody waits any more. They are
// not read again meanwhile: each would take a thread.
var pendingReads sync.Map

// readWithTimeout reads a file of the process, but waits no longer than that.
func (p *ProcessHandle) readWithTimeout(file string, limit time.Duration) ([]byte, error) {
	type answer struct {
		raw []byte
		err error
	}
	path := filepath.Join(p.folder.Name(), file)
	if _, waits := pendingReads.LoadOrStore(path, nil); waits {
		return nil, fmt.Errorf("read %s: %w", path, ErrReadTimeout)
	}
	f, err := p.open(file)
	if err != nil {
		pendingReads.Delete(path)
		return nil, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer pendingReads.Delete(path)
		raw, err := readAll(f)
		answers <- answer{raw, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.raw, a.err
	case <-timer.C:
		return nil, fmt.Errorf("read %s: %w within %v", path, ErrReadTimeout, limit)
	}
}
