// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownerProcessVariable makes the test binary start a cluster in the folder that it names
// ("-" for a temporary one), print a report, and wait to be killed.
const ownerProcessVariable = "SLUICE_TEST_OWN_CLUSTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerProcessVariable); dir != "" {
		runOwnerProcess(strings.TrimPrefix(dir, "-"))
	}
	os.Exit(m.Run())
}

// ownerReport describes the owner's cluster.
type ownerReport struct {
	Dir   string
	PIDs  map[string]int
	Ports ports
}

func runOwnerProcess(dir string) {
	c, err := Start(context.Background(), Options{Dir: dir, Progress: os.Stderr})
	if err != nil {
		panic(err)
	}
	r := ownerReport{Dir: c.Dir(), PIDs: map[string]int{}, Ports: c.folder.state.Ports}
	for _, s := range c.Processes().List() {
		r.PIDs[s.Name] = s.PID
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
	select {}
}

// killOwnerProcess runs a cluster in another process and kills that process.
func killOwnerProcess(t *testing.T, dir string) ownerReport {
	t.Helper()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerProcessVariable+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer owner.Wait()
	defer owner.Process.Kill()
	var r ownerReport
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	for name, pid := range r.PIDs {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("%s, process %d: %v", name, pid, err)
		}
	}
	if pid, err := Holder(r.Dir); err != nil || pid != owner.Process.Pid {
		t.Errorf("the holder of %s is %d (%v), want %d", r.Dir, pid, err, owner.Process.Pid)
	}
	return r
}

// awaitGone waits until the kernel has ended the cluster's processes.
func (r ownerReport) awaitGone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		var errs []error
		for name, pid := range r.PIDs {
			if !processEnded(pid) {
				errs = append(errs, fmt.Errorf("%s, process %d, remains", name, pid))
			}
		}
		return errors.Join(errs...)
	})
	for _, port := range []int{r.Ports.APIServer, r.Ports.Etcd, r.Ports.EtcdPeer, r.Ports.ControllerManager, r.Ports.Scheduler} {
		if err := portFree(port); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// processEnded reports whether a process has ended with all its threads, or is a zombie.
func processEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	return fields[0] == "Z" && fields[17] <= "1"
}

func TestTemporaryClusterRemovedAfterOwnerKilled(t *testing.T) {
	r := killOwnerProcess(t, "-")
	r.awaitGone(t)
	eventually(t, func() error {
		if _, err := os.Stat(r.Dir); !os.IsNotExist(err) {
			return fmt.Errorf("%s remains", r.Dir)
		}
		return nil
	})
}

func TestClusterResumedOrRemovedAfterKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	r := killOwnerProcess(t, dir)
	// Its processes may still be ending. The next start waits for them, and so finds its
	// ports free.
	if pid, err := Holder(dir); err != nil || pid != 0 || !Exists(dir) {
		t.Errorf("holder %d, %v", pid, err)
	}
	c := startCluster(t, dir, true)
	if got := c.folder.state.Ports; got != r.Ports {
		t.Errorf("resumed on ports %+v, want %+v", got, r.Ports)
	}
	stop(t, c)
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s remains: %v", dir, err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("second Remove: %v", err)
	}
	if err := Remove(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no cluster's") {
		t.Errorf("Remove of a folder without a cluster: %v", err)
	}
}

func TestInterruptedStartCleansUp(t *testing.T) {
	for processes := range 3 {
		t.Run(fmt.Sprintf("with %d processes", processes), func(t *testing.T) {
			base := shortTemporary(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for len(children(t)) < processes && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
			if left := children(t); len(left) != 0 {
				t.Errorf("remaining processes: %v", left)
			}
			left, err := os.ReadDir(base)
			if err != nil || len(left) != 0 {
				t.Errorf("remaining files: %v, %v", left, err)
			}
		})
	}
}

// shortTemporary makes a folder of the test the one for temporary folders. The names of
// t.TempDir are too long.
func shortTemporary(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Setenv("TMPDIR", base)
	return base
}

// children returns the names of this process's children.
func children(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		name, after, _ := strings.Cut(string(stat), ") ")
		var state string
		var parent int
		if _, err := fmt.Sscan(after, &state, &parent); err == nil && parent == os.Getpid() {
			names = append(names, name)
		}
	}
	return names
}
