// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fakePluginVariable in the environment makes this test binary a device plugin that prints a line
// for each SIGHUP.
const fakePluginVariable = "SLUICE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(fakePluginVariable) != "" {
		runFakePlugin()
		return
	}
	os.Exit(m.Run())
}

func runFakePlugin() {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	fmt.Println("ready")
	go func() { // ends with the test
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	for range hangups {
		fmt.Println("hangup")
	}
}

// startFakePlugin starts a device plugin with a command line and returns its output.
func startFakePlugin(t *testing.T, words ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, self, words...)
}

// startProcessWithoutHandler starts a process without a handler for SIGHUP. (Go programs always
// have one.)
func startProcessWithoutHandler(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd, _ := startProcess(t, "/bin/sh", name, "-c", "echo ready; read line")
	return cmd
}

func startProcess(t *testing.T, program string, words ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = words
	cmd.Env = append(os.Environ(), fakePluginVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	output := bufio.NewScanner(out)
	if !output.Scan() || output.Text() != "ready" {
		t.Fatalf("output %q: %v", output.Text(), output.Err())
	}
	return cmd, output
}

// newProcfs returns a procfs with these processes under other names.
func newProcfs(t *testing.T, entries map[string]int) string {
	t.Helper()
	root := t.TempDir()
	for name, pid := range entries {
		if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "sys"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestReload(t *testing.T) {
	one, outputOfOne := startFakePlugin(t, "/usr/bin/nvidia-device-plugin", "--mig-strategy=mixed")
	two, outputOfTwo := startFakePlugin(t, "sluice", "simulate", "kubelet", "--config", "x")
	other := startProcessWithoutHandler(t, "grep")
	for _, tc := range []struct {
		command string
		output  *bufio.Scanner
	}{
		{"nvidia-device-plugin", outputOfOne},
		{"sluice simulate kubelet", outputOfTwo},
	} {
		f := Daemon{
			Proc:    newProcfs(t, map[string]int{"5000001": one.Process.Pid, "17": two.Process.Pid, "18": other.Process.Pid}),
			Command: tc.command,
		}
		if signaled, err := f.Reload(); signaled != 1 || err != nil {
			t.Errorf("%s: %d, %v", tc.command, signaled, err)
		}
		if !tc.output.Scan() || tc.output.Text() != "hangup" {
			t.Errorf("%s: output %q", tc.command, tc.output.Text())
		}
	}
}

// SIGHUP would end a process without a handler.
func TestProcessesWithoutHandlerAreNotSignaled(t *testing.T) {
	left := startProcessWithoutHandler(t, "nvidia-device-plugin")
	f := Daemon{Name: "device plugin", Proc: newProcfs(t, map[string]int{"17": left.Process.Pid}), Command: "nvidia-device-plugin"}
	_, err := f.Reload()
	if !errors.Is(err, ErrDaemonNotFound) || !strings.Contains(err.Error(), "has no handler for SIGHUP") {
		t.Errorf("%v", err)
	}
	if err := left.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

func TestReloadWithoutDevicePlugin(t *testing.T) {
	running, _ := startFakePlugin(t, "another-plugin")
	gone := newProcfs(t, map[string]int{"17": running.Process.Pid, "18": 1 << 22})
	for name, command := range map[string]string{"another": "nvidia-device-plugin", "longer": "another-plugin --x", "nothing": ""} {
		f := Daemon{Name: "device plugin", Proc: gone, Command: command}
		if _, err := f.Reload(); !errors.Is(err, ErrDaemonNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := Daemon{Name: "device plugin", Proc: filepath.Join(t.TempDir(), "none"), Command: "x"}
	if _, err := f.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A folder that only resembles a process's gets no signal.
func TestReloadIgnoresFakeProcessFolder(t *testing.T) {
	root := newProcfs(t, nil)
	folder := filepath.Join(root, "17")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"cmdline": "nvidia-device-plugin\x00", "status": "SigCgt:\t0000000000000001\n"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := Daemon{Name: "device plugin", Proc: root, Command: "nvidia-device-plugin"}
	if signaled, err := f.Reload(); signaled != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("%d, %v", signaled, err)
	}
}
