// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newOwnProcfs returns a procfs with this process under another PID.
func newOwnProcfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(os.Getpid())), filepath.Join(root, "5000001")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "sys"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSendSIGHUP(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	p, err := pinProcess(newOwnProcfs(t), 5000001)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if catches, err := p.handlesSIGHUP(); !catches || err != nil {
		t.Errorf("catches %v, %v", catches, err)
	}
	for name, send := range map[string]func() error{"by its folder": p.sendSIGHUP, "on an old kernel": p.killByPID} {
		if err := send(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		<-hangups
	}
}

// A folder that only resembles a process's gets no signal.
func TestOpenFakeProcessFolder(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "17"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := pinProcess(root, 17)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.sendSIGHUP(); !errors.Is(err, unix.EBADF) {
		t.Errorf("signal: %v", err)
	}
	for _, status := range []string{"Name:\tx\n", "Pid:\t1\nSigCgt:\txyz\n", "Pid:\t-4\n"} {
		if err := os.WriteFile(filepath.Join(root, "17", "status"), []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
		if catches, err := p.handlesSIGHUP(); catches || err == nil {
			t.Errorf("%q: catches %v, %v", status, catches, err)
		}
		if err := p.killByPID(); err == nil {
			t.Errorf("%q: signaled", status)
		}
	}
}

func TestRunningProcesses(t *testing.T) {
	commands, err := RunningProcesses(newOwnProcfs(t))
	if err != nil || len(commands) != 1 {
		t.Fatalf("%v, %v", commands, err)
	}
	if want := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...); !slices.Equal(commands[0].Command, want) {
		t.Errorf("%q, want %q", commands[0], want)
	}
	if _, err := RunningProcesses(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A process with locked memory is skipped, and occupies one thread, not one for each attempt.
func TestUnreadableProcess(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "42", "cmdline")
	if err := errors.Join(os.Mkdir(filepath.Dir(pipe), 0o700), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := listProcesses(root)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if _, err := readWithTimeout(pipe, time.Millisecond, all[0].CmdLine); !errors.Is(err, ErrReadTimeout) {
		t.Errorf("%v", err)
	}
	if commands, err := RunningProcesses(root); len(commands) != 0 || err != nil {
		t.Errorf("%v, %v", commands, err)
	}
	if _, err := writer.WriteString("train\x00"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for { // until the pending read ends
		if _, waits := pendingReads.Load(pipe); !waits {
			break
		}
		runtime.Gosched()
	}
}

func TestBootID(t *testing.T) {
	if id, err := BootID("/proc"); err != nil || len(id) != 36 {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := BootID(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
