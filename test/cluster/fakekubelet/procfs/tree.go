// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procfs writes a node's /proc, as far as a GPU agent looks into it.
//
// What enters are the processes of simulated pods. What leaves is a folder with
// what the kernel would show of them (cgroup, cmdline, comm, stat), the boot's
// identity, and an entry for one process that is real and stands in for the
// device plugin. Simulated processes have identifiers that the kernel gives to
// none, so that nobody can mistake one for a process that can be signaled.
//
// The package never reads the real /proc, and never starts or signals anything.
package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
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
	if err := t.removeEntries(func(string) bool { return true }); err != nil {
		return err
	}
	return t.writeFile(t.bootIDPath(), uuid.NewString()+"\n")
}

// BootID is the identity of the present boot; empty before the first.
func (t Tree) BootID() (string, error) {
	raw, err := os.ReadFile(t.bootIDPath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

// AddProcess writes what the kernel shows of a process. Its folder appears as a whole.
func (t Tree) AddProcess(p Process) error {
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
		if err := t.writeFile(filepath.Join(next, name), content); err != nil {
			return fmt.Errorf("process %d: %w", p.PID, err)
		}
	}
	if err := os.Rename(next, folder); err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	return nil
}

// RemoveProcess takes a process away. It is no error if there is none.
func (t Tree) RemoveProcess(pid uint32) error {
	return os.RemoveAll(filepath.Join(t.Root, strconv.FormatUint(uint64(pid), 10)))
}

// RetainProcesses takes away every process but these, and what a crash has left.
func (t Tree) RetainProcesses(pids map[uint32]bool) error {
	return t.removeEntries(func(name string) bool {
		pid, err := strconv.ParseUint(name, 10, 32)
		return name != "sys" && (err != nil || !pids[uint32(pid)])
	})
}

// removeEntries removes the entries that are none of a tree's, or that which picks.
func (t Tree) removeEntries(which func(name string) bool) error {
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

// LinkProcess shows a real process under its own identifier: whoever looks, finds the
// kernel's own words about it.
func (t Tree) LinkProcess(pid int) error {
	if err := t.UnlinkProcess(pid); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Root, 0o700); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), t.linkPath(pid))
}

// UnlinkProcess takes the entry of a real process away. It is no error if there is none.
func (t Tree) UnlinkProcess(pid int) error {
	if err := os.Remove(t.linkPath(pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t Tree) linkPath(pid int) string { return filepath.Join(t.Root, strconv.Itoa(pid)) }

func (t Tree) writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// Process is one process of a simulated pod.
type Process struct {
	// PID is at least FirstPID.
	PID uint32
	// Command is what it was started with, at least its program.
	Command []string
	// Cgroup is its control group below the root of the unified hierarchy: see
	// Cgroup.
	Cgroup string
	// Started is when it began.
	Started time.Time
}

// QOS is a pod's class, in the words of the kubelet's control groups.
type QOS string

// The classes. Guaranteed pods lie above those of the others.
const (
	Guaranteed QOS = ""
	Burstable  QOS = "burstable"
	BestEffort QOS = "besteffort"
)

// Cgroup is the control group of a container as containerd names it, with the
// kubelet's systemd driver.
func Cgroup(class QOS, podUID, containerID string) string {
	slices, name := []string{"/kubepods.slice"}, "kubepods"
	if class != Guaranteed {
		name += "-" + string(class)
		slices = append(slices, name+".slice")
	}
	// A hyphen is the hierarchy's own separator.
	name += "-pod" + strings.ReplaceAll(podUID, "-", "_")
	return path.Join(append(slices, name+".slice", "cri-containerd-"+containerID+".scope")...)
}

// clockTicks is how many there are in a second, as user space is told.
const clockTicks = 100

// maxComm is as long, in bytes, as the kernel lets a process's name be.
const maxComm = 15

func (p Process) files(booted time.Time) map[string]string {
	comm := path.Base(p.Command[0])
	comm = comm[:min(len(comm), maxComm)]
	// What an agent may ask for is in its place, the rest is zero: the state, the
	// parents (PID 1), and the 22nd field, when it began.
	fields := make([]string, 52)
	for i := range fields {
		fields[i] = "0"
	}
	pid := strconv.FormatUint(uint64(p.PID), 10)
	fields[0], fields[1], fields[2], fields[3], fields[4], fields[5] = pid, "("+comm+")", "S", "1", pid, pid
	fields[7], fields[17], fields[19] = "-1", "20", "1"
	fields[21] = strconv.FormatInt(max(0, p.Started.Sub(booted).Milliseconds()*clockTicks/1000), 10)
	return map[string]string{
		"cgroup":  "0::" + p.Cgroup + "\n",
		"cmdline": strings.Join(p.Command, "\x00") + "\x00",
		"comm":    comm + "\n",
		"stat":    strings.Join(fields, " ") + "\n",
	}
}
