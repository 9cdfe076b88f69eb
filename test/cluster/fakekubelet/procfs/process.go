// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"path"
	"strconv"
	"strings"
	"time"
)

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
