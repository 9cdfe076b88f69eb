// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// DeviceUser is a process that has a GPU open.
type DeviceUser struct {
	PID int
	// Program is the name of its program: nvidia-persistenced.
	Program string
	// Pods are the UIDs of the pods in which it runs; empty outside of pods.
	Pods []types.UID
	// Service is its unit of systemd on the host: nvidia-persistenced.service; "" if it has none.
	Service string
}

// String names the process, and the command that ends a service of the host.
func (u DeviceUser) String() string {
	text := fmt.Sprintf("process %s (%d)", u.Program, u.PID)
	switch {
	case len(u.Pods) > 0:
		return text + " of a pod"
	case u.Service != "":
		return fmt.Sprintf("%s of the host's service %s: stop it with `systemctl stop %s`", text, u.Service, u.Service)
	}
	return text + " of the host"
}

// DeviceUsers returns the processes that have a GPU open, without this process. The driver does not
// report all of them: a daemon that only watches the GPU keeps it open, too.
func DeviceUsers(proc, gpu string) ([]DeviceUser, error) {
	minor, err := gpuMinor(proc, gpu)
	if err != nil {
		return nil, fmt.Errorf("find the device node of GPU %s: %w", gpu, err)
	}
	return nodeUsers(proc, fmt.Sprintf("nvidia%d", minor))
}

// nodeUsers returns the processes that have a character device of a name open.
func nodeUsers(proc, name string) (users []DeviceUser, err error) {
	all, err := listProcesses(proc)
	if err != nil {
		return nil, err
	}
	for _, each := range all {
		folder := filepath.Join(proc, strconv.Itoa(each.PID))
		if each.PID == os.Getpid() || !hasOpen(filepath.Join(folder, "fd"), name) {
			continue
		}
		user := DeviceUser{PID: each.PID, Program: programName(folder)}
		if text, err := os.ReadFile(filepath.Join(folder, "cgroup")); err == nil {
			if user.Pods = ParsePodUIDs(string(text)); len(user.Pods) == 0 {
				user.Service = parseService(string(text))
			}
		}
		users = append(users, user)
	}
	slices.SortFunc(users, func(a, b DeviceUser) int { return a.PID - b.PID })
	return users, nil
}

// hasOpen reports whether a folder of file descriptors has the device. It reads the links first: a stat
// of another file may hang, as on a network file system.
func hasOpen(folder, name string) bool {
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		return false // The process ended, or is not this user's.
	}
	for _, each := range descriptors {
		path := filepath.Join(folder, each.Name())
		if target, err := os.Readlink(path); err != nil || filepath.Base(target) != name {
			continue
		}
		if stat, err := os.Stat(path); err == nil && stat.Mode()&fs.ModeCharDevice != 0 {
			return true
		}
	}
	return false
}

// programName returns the name of a process's program. Unlike its command line it can always be read.
func programName(folder string) string {
	if path, err := os.Readlink(filepath.Join(folder, "exe")); err == nil {
		return filepath.Base(strings.TrimSuffix(path, " (deleted)"))
	}
	name, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
}

// servicePattern matches the cgroup of a service of the host: /system.slice/nvidia-dcgm.service. A user's
// own services lie below /user.slice.
var servicePattern = regexp.MustCompile(`/system\.slice/(?:[^/:]+\.slice/)*([^/:]+\.service)(?:/|$)`)

// parseService returns the host's service in the text of /proc/<pid>/cgroup; "" for none.
func parseService(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if found := servicePattern.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			return found[1]
		}
	}
	return ""
}
