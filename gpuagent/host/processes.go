// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Process is a process of the node.
type Process struct {
	// Command is its command line, the program without its folder.
	Command []string
	// Pods are the UIDs of the pods in which it runs; empty outside of pods.
	Pods []types.UID
}

// RunningProcesses returns the processes with a readable command line.
func RunningProcesses(root string) ([]Process, error) {
	all, err := listProcesses(root)
	if err != nil {
		return nil, err
	}
	var running []Process
	for _, each := range all {
		words, err := readCommand(root, each)
		if err != nil || len(words) == 0 {
			continue // The process ended, hangs, or is a kernel thread.
		}
		pods, _ := ProcessPodUIDs(root, uint32(each.PID)) // Without a cgroup it counts as outside of pods.
		running = append(running, Process{Command: words, Pods: pods})
	}
	return running, nil
}

func listProcesses(root string) (procfs.Procs, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return all, nil
}

// BootID returns the ID of the machine's current boot.
func BootID(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", errors.New("read boot ID: boot_id is empty")
	}
	return id, nil
}

// DriverLoad identifies the current load of NVIDIA's kernel module within the boot; "" if it is not loaded.
// It is the inode number of /sys/module/nvidia: sysfs gives each new folder the next number, and a number
// a second time only after 2^64 folders (Linux 5.5 and later, commit 40430452fd5d; 2^31 before). Its time
// stamps are those of the first access, and the module's version may be the same after a reload.
func DriverLoad(sys string) (string, error) {
	var stat unix.Stat_t
	path := filepath.Join(sys, "module", "nvidia")
	switch err := unix.Stat(path, &stat); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the load of the driver: %w", &os.PathError{Op: "stat", Path: path, Err: err})
	}
	return strconv.FormatUint(stat.Ino, 10), nil
}

// ErrReadTimeout reports that the kernel did not return a command line in time. The command line lies
// in the process's own memory: reading it waits for a process that hangs in a driver with its memory
// locked, as on a broken GPU, possibly forever.
var ErrReadTimeout = errors.New("the process's memory cannot be read")

const (
	// readTimeout limits the wait for one process.
	readTimeout = 2 * time.Second
	// maxCommandBytes limits the words of a command line that are kept.
	maxCommandBytes = 64 << 10
)

// pendingReads holds the processes whose command line is still being read after a timeout. A second
// read would only occupy another thread.
var pendingReads sync.Map

// readCommand returns the words of a process's command line, the program without its folder. It returns
// none for a kernel thread or a zombie, and an error wrapping [ErrReadTimeout] for a hung process.
func readCommand(root string, p procfs.Proc) ([]string, error) {
	words, err := readWithTimeout(filepath.Join(root, strconv.Itoa(p.PID), "cmdline"), readTimeout, p.CmdLine)
	if err != nil || len(words) == 0 {
		return nil, err
	}
	left := maxCommandBytes
	for i, word := range words {
		if left -= len(word); left < 0 {
			words = words[:i]
			break
		}
		words[i] = strings.Clone(word) // The whole command line may be 1 MiB.
	}
	if len(words) > 0 {
		words[0] = filepath.Base(words[0])
	}
	return words, nil
}

// readWithTimeout returns what read returns, or after the limit an error wrapping [ErrReadTimeout].
func readWithTimeout(path string, limit time.Duration, read func() ([]string, error)) ([]string, error) {
	type result struct {
		words []string
		err   error
	}
	if _, pending := pendingReads.Load(path); pending {
		return nil, fmt.Errorf("read %s: %w", path, ErrReadTimeout)
	}
	results := make(chan result, 1)
	var settled atomic.Bool // by the end of the read, or by the timeout before
	go func() {
		words, err := read()
		results <- result{words, err}
		if settled.Swap(true) {
			pendingReads.Delete(path)
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.words, r.err
	case <-timer.C:
	}
	pendingReads.Store(path, nil)
	if settled.Swap(true) { // the read has ended since
		pendingReads.Delete(path)
		r := <-results
		return r.words, r.err
	}
	return nil, fmt.Errorf("read %s: %w within %v", path, ErrReadTimeout, limit)
}

// podCgroupPattern matches a cgroup with a pod's UID in both forms that the kubelet writes:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f3c_….slice/…
//	/kubepods/burstable/pod0f3c…/…
//
// The UID of a static pod has 32 digits without dashes.
var podCgroupPattern = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?$`)

// ParsePodUIDs returns the UIDs of the pods in the text of /proc/<pid>/cgroup, the innermost last. There
// are several if the node itself is a container.
func ParsePodUIDs(cgroup string) (uids []types.UID) {
	seen := map[types.UID]bool{}
	for line := range strings.Lines(cgroup) {
		// hierarchy:controllers:path
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		// In another cgroup namespace the path begins at the nearest common folder.
		if !strings.Contains(path, "kubepods") && !strings.HasPrefix(path, "/../") {
			continue
		}
		for segment := range strings.SplitSeq(path, "/") {
			if found := podCgroupPattern.FindStringSubmatch(segment); found != nil {
				uid := types.UID(strings.ReplaceAll(found[1], "_", "-"))
				if !seen[uid] {
					seen[uid] = true
					uids = append(uids, uid)
				}
			}
		}
	}
	return uids
}

// ProcessPodUIDs returns the UIDs of the pods in which a process runs, none for a process outside of
// pods. The error wraps fs.ErrNotExist if the process ended.
func ProcessPodUIDs(proc string, pid uint32) ([]types.UID, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read pod of process %d: %w", pid, err)
	}
	return ParsePodUIDs(string(text)), nil
}
