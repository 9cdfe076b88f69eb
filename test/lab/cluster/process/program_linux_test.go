// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKilledSupervisorEndsChildren(t *testing.T) {
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), supervisorVariable+"="+t.TempDir())
	out, err := supervisor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	supervisor.Stderr = os.Stderr
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	defer supervisor.Wait()
	defer supervisor.Process.Kill()

	var children []int
	for lines := bufio.NewScanner(out); len(children) < 2 && lines.Scan(); {
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &pid); err != nil {
			t.Fatal(err)
		}
		if !isAlive(t, pid) {
			t.Errorf("child %d is not alive", pid)
		}
		children = append(children, pid)
	}
	if len(children) != 2 {
		t.Fatalf("the supervisor started %v", children)
	}
	kill(t, supervisor.Process.Pid)
	for _, pid := range children {
		eventually(t, "the end of the killed supervisor's child", func() bool { return !isAlive(t, pid) })
	}
}

// The kernel kills a child when the thread that forked it ends. A caller of Start whose
// thread ends must keep the component.
func TestChildOutlivesStartingThread(t *testing.T) {
	g := newGroup(t)
	thread := startOnEndingThread(func() {
		if err := g.Start(context.Background(), shellSpec("web", "exec sleep 1000")); err != nil {
			t.Error(err)
		}
	})
	task := fmt.Sprintf("/proc/self/task/%d", thread)
	eventually(t, "the end of the caller's thread", func() bool {
		_, err := os.Stat(task)
		return os.IsNotExist(err)
	})
	if s := status(t, g, "web"); s.State != Running || s.Restarts != 0 || !isAlive(t, s.PID) {
		t.Errorf("after the end of the thread: %+v", s)
	}
}

// startOnEndingThread calls do on a thread that ends soon after, and returns the thread's
// ID.
func startOnEndingThread(do func()) int {
	thread := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			// The main thread never ends: keep it and use another.
			thread <- startOnEndingThread(do)
			runtime.UnlockOSThread()
			return
		}
		do()
		thread <- unix.Gettid()
	}()
	return <-thread
}

func TestDescendantsEndWithComponent(t *testing.T) {
	g := newGroup(t)
	spec := shellSpec("web", "sleep 1000 & echo helper $!; wait")
	spec.Ready = readLog(g, "web", "helper")
	start(t, g, spec)
	var pid int
	if _, err := fmt.Sscanf(read(t, status(t, g, "web").LogPath), "helper %d", &pid); err != nil {
		t.Fatal(err)
	}
	kill(t, status(t, g, "web").PID)
	eventually(t, "the end of the component's own child", func() bool { return !isAlive(t, pid) })
}

func TestReapLeftovers(t *testing.T) {
	dir := t.TempDir()
	g, err := NewGroup(dir) // creates the folders
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop(context.Background())

	leftover := startOrphan(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	unresponsive := startOrphan(t, "trap '' TERM; echo ready; exec sleep 1000")
	unrelated := startOrphan(t, "echo ready; exec sleep 1000")
	for name, pid := range map[string]int{"etcd": leftover, "scheduler": unresponsive} {
		if _, err := saveRecord(dir, name, "/bin/sh", pid); err != nil {
			t.Fatal(err)
		}
	}
	// The same ID with another start time, or another boot.
	for name, born := range map[string]string{"apiserver": "1", "kwok": "", "webhook": "f3b1/77"} {
		content, _ := json.Marshal(Record{Name: name, PID: unrelated, StartID: born})
		write(t, filepath.Join(recordsIn(dir), name+recordSuffix), string(content))
	}
	gone, _ := json.Marshal(Record{Name: "gone", PID: 1 << 22, StartID: "x"})
	write(t, filepath.Join(recordsIn(dir), "gone.json"), string(gone))

	ended, err := ReapLeftovers(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(ended) != 2 || ended[0].Name != "etcd" || ended[1].Name != "scheduler" {
		t.Errorf("ended %+v, want etcd and scheduler", ended)
	}
	if isAlive(t, leftover) || isAlive(t, unresponsive) {
		t.Error("a recorded process is alive")
	}
	if !isAlive(t, unrelated) {
		t.Error("a process with another start was killed")
	}
	if records, _ := filepath.Glob(filepath.Join(recordsIn(dir), "*")); len(records) != 0 {
		t.Errorf("remaining records: %v", records)
	}
}

func TestReapLeftoversWithInvalidRecord(t *testing.T) {
	dir := t.TempDir()
	if ended, err := ReapLeftovers(dir); err != nil || len(ended) != 0 {
		t.Errorf("ReapLeftovers of an empty folder: %v, %v", ended, err)
	}
	if err := os.MkdirAll(recordsIn(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(recordsIn(dir), "etcd.json"), "{")
	if _, err := ReapLeftovers(dir); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("got %v", err)
	}
}

// startOrphan starts a script outside of all groups and returns its process ID after the
// script has printed "ready".
func startOrphan(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the script printed %q, %v", line, err)
	}
	return cmd.Process.Pid
}

func TestStartIDIsStable(t *testing.T) {
	first, err := startID(os.Getpid())
	if err != nil || !strings.Contains(first, "/") {
		t.Fatalf("got %q, %v", first, err)
	}
	if second, err := startID(os.Getpid()); err != nil || second != first {
		t.Errorf("got %q, %v; want %q", second, err, first)
	}
	if none, err := startID(1 << 22); err != nil || none != "" {
		t.Errorf("startID of a missing process: %q, %v", none, err)
	}
}
