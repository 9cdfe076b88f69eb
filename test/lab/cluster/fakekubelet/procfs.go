// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

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

// firstPID is the lowest simulated process ID. The kernel's own end at 4 194 304, so a
// signal never reaches a real process.
const firstPID uint32 = 5_000_001

// procFS is the folder with a node's /proc: the boot ID, the processes of pods, and a link
// to the process that represents the device plugin.
type procFS struct{ Root string }

// bootIDPath returns the path that the kernel uses below /proc.
func (t procFS) bootIDPath() string {
	return filepath.Join(t.Root, "sys", "kernel", "random", "boot_id")
}

// Boot starts a boot, with a new boot ID and without processes.
func (t procFS) Boot() error {
	if err := t.removeEntries(func(string) bool { return true }); err != nil {
		return err
	}
	return t.writeFile(t.bootIDPath(), uuid.NewString()+"\n")
}

// BootID returns the ID of the present boot; "" before the first.
func (t procFS) BootID() (string, error) {
	raw, err := os.ReadFile(t.bootIDPath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

// AddProcess writes the files of a process. The folder appears atomically.
func (t procFS) AddProcess(p procEntry) error {
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

// RemoveProcess removes a process. It ignores a missing one.
func (t procFS) RemoveProcess(pid uint32) error {
	return os.RemoveAll(filepath.Join(t.Root, strconv.FormatUint(uint64(pid), 10)))
}

// RetainProcesses removes all processes except these, and the remains of a crash.
func (t procFS) RetainProcesses(pids map[uint32]bool) error {
	return t.removeEntries(func(name string) bool {
		pid, err := strconv.ParseUint(name, 10, 32)
		return name != "sys" && (err != nil || !pids[uint32(pid)])
	})
}

// removeEntries removes the entries that match.
func (t procFS) removeEntries(matches func(name string) bool) error {
	entries, err := os.ReadDir(t.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if matches(entry.Name()) {
			if err := os.RemoveAll(filepath.Join(t.Root, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// LinkProcess adds a link to a real process under its own ID.
func (t procFS) LinkProcess(pid int) error {
	if err := t.UnlinkProcess(pid); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Root, 0o700); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), t.linkPath(pid))
}

// UnlinkProcess removes the link to a real process. It ignores a missing one.
func (t procFS) UnlinkProcess(pid int) error {
	if err := os.Remove(t.linkPath(pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t procFS) linkPath(pid int) string { return filepath.Join(t.Root, strconv.Itoa(pid)) }

func (t procFS) writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// procEntry is a process of a simulated pod.
type procEntry struct {
	// PID is at least firstPID.
	PID uint32
	// Command is the command line, at least the program.
	Command []string
	// Cgroup is the control group below the root of the unified hierarchy, as cgroupPath
	// returns it.
	Cgroup string
	// Started is the start time.
	Started time.Time
}

// cgroupClass is a pod's class, as in the names of the kubelet's control groups.
type cgroupClass string

// The classes. The control groups of guaranteed pods are one level above the others.
const (
	guaranteedPods cgroupClass = ""
	burstablePods  cgroupClass = "burstable"
	bestEffortPods cgroupClass = "besteffort"
)

// cgroupPath returns the control group of a container as containerd names it, with the
// kubelet's systemd driver.
func cgroupPath(class cgroupClass, podUID, containerID string) string {
	slices, name := []string{"/kubepods.slice"}, "kubepods"
	if class != guaranteedPods {
		name += "-" + string(class)
		slices = append(slices, name+".slice")
	}
	// A hyphen separates the levels of the hierarchy.
	name += "-pod" + strings.ReplaceAll(podUID, "-", "_")
	return path.Join(append(slices, name+".slice", "cri-containerd-"+containerID+".scope")...)
}

// clockTicks is the number of clock ticks per second in user space.
const clockTicks = 100

// maxComm is the kernel's limit for a process's name, in bytes.
const maxComm = 15

func (p procEntry) files(booted time.Time) map[string]string {
	comm := path.Base(p.Command[0])
	comm = comm[:min(len(comm), maxComm)]
	// The fields that an agent reads are set, the rest is zero: the state, the parent (PID
	// 1), and the 22nd field, the start time.
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
