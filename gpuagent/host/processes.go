// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
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
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all, err := fs.AllProcs()
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
	if _, pending := pendingReads.LoadOrStore(path, nil); pending {
		return nil, fmt.Errorf("read %s: %w", path, ErrReadTimeout)
	}
	results := make(chan result, 1)
	go func() {
		defer pendingReads.Delete(path)
		words, err := read()
		results <- result{words, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.words, r.err
	case <-timer.C:
		return nil, fmt.Errorf("read %s: %w within %v", path, ErrReadTimeout, limit)
	}
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
	err := unix.PidfdSendSignal(int(p.folder.Fd()), unix.SIGHUP, nil, 0)
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
