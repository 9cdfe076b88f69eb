// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// FirstPID is the least identifier of a simulated process. The kernel's own end at
// 4 194 304.
const FirstPID uint32 = 5_000_001

// Tree is the folder that stands for a node's /proc.
type Tree struct{ Root string }

// bootIDPath is the kernel's own, below /proc.
func (t Tree) bootIDPath() string {
	return filepath.Join(t.Root, "sys", "kernel", "random", "boot_id")
}

// Boot begins a boot: a new identity, and no process.
func (t Tree) Boot() error {
	if err := t.clear(func(string) bool { return true }); err != nil {
		return err
	}
	return t.put(t.bootIDPath(), uuid.NewString()+"\n")
}

// BootID is the identity of the present boot; empty before the first.
func (t Tree) BootID() (string, error) {
	raw, err := os.ReadFile(t.bootIDPath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

// Show writes what the kernel shows of a process. Its folder appears as a whole.
func (t Tree) Show(p Process) error {
	folder := filepath.Join(t.Root, strconv.FormatUint(uint64(p.PID), 10))
	next := folder + ".next"
	if err := errors.Join(os.RemoveAll(next), os.RemoveAll(folder)); err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	var booted time.Time
	if info, err := os.Stat(t.bootIDPath()); err == nil {
		booted = info.ModTime()
	}
	for name, content := range p.files(booted) {
		if err := t.put(filepath.Join(next, name), content); err != nil {
			return fmt.Errorf("process %d: %w", p.PID, err)
		}
	}
	if err := os.Rename(next, folder); err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	return nil
}

// Hide takes a process away. It is no error if there is none.
func (t Tree) Hide(pid uint32) error {
	return os.RemoveAll(filepath.Join(t.Root, strconv.FormatUint(uint64(pid), 10)))
}

// Keep takes away every process but these, and what a crash has left.
func (t Tree) Keep(pids map[uint32]bool) error {
	return t.clear(func(name string) bool {
		pid, err := strconv.ParseUint(name, 10, 32)
		return name != "sys" && (err != nil || !pids[uint32(pid)])
	})
}

// clear removes the entries that are none of a tree's, or that which picks.
func (t Tree) clear(which func(name string) bool) error {
	entries, err := os.ReadDir(t.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if which(entry.Name()) {
			if err := os.RemoveAll(filepath.Join(t.Root, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Link shows a real process under its own identifier: whoever looks, finds the
// kernel's own words about it.
func (t Tree) Link(pid int) error {
	if err := t.Unlink(pid); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Root, 0o700); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), t.link(pid))
}

// Unlink takes the entry of a real process away. It is no error if there is none.
func (t Tree) Unlink(pid int) error {
	if err := os.Remove(t.link(pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t Tree) link(pid int) string { return filepath.Join(t.Root, strconv.Itoa(pid)) }

func (t Tree) put(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}
