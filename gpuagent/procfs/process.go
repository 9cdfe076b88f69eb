// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFile is as much as is read of a file in procfs, in bytes.
const maxFile = 64 << 10

// Process is one whose folder in procfs is open: what is read below it, and signalled
// by it, is this process or none.
type Process struct{ folder *os.File }

// Open opens a process's folder below the root of a procfs.
func Open(root, name string) (*Process, error) {
	folder, err := os.OpenFile(filepath.Join(root, name), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Process{folder: folder}, nil
}

// Close lets go of the process.
func (p *Process) Close() { _ = p.folder.Close() }

func (p *Process) read(file string) ([]byte, error) {
	f, err := p.open(file)
	if err != nil {
		return nil, err
	}
	return readAll(f)
}

func (p *Process) open(file string) (*os.File, error) {
	fd, err := unix.Openat(int(p.folder.Fd()), file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(p.folder.Name(), file), Err: err}
	}
	return os.NewFile(uintptr(fd), file), nil
}

func readAll(f *os.File) ([]byte, error) {
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// Command are the words of its command line, its program without the folder; none of a
// kernel thread, or of one that has ended and is still counted. It is an error wrapping
// [ErrStuck] where the kernel does not tell.
func (p *Process) Command() ([]string, error) {
	raw, err := p.readWithin("cmdline", patience)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	words := strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
	words[0] = filepath.Base(words[0])
	return words, nil
}

// CatchesHangup tells whether it has a handler for SIGHUP; without one it would end.
func (p *Process) CatchesHangup() (bool, error) {
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

// HangUp sends SIGHUP. A folder of procfs stands for the process that it was opened
// for, whatever becomes of its number.
func (p *Process) HangUp() error {
	err := unix.PidfdSendSignal(int(p.folder.Fd()), unix.SIGHUP, nil, 0)
	if errors.Is(err, unix.ENOSYS) {
		return p.killOnOldKernel()
	}
	return err
}

// killOnOldKernel is for kernels before 5.1: as its folder can still be read, the
// number is still its own but for the moment in between.
func (p *Process) killOnOldKernel() error {
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
