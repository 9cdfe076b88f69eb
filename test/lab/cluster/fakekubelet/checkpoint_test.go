// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/process"
)

func TestCheckpointFile(t *testing.T) {
	dir := t.TempDir()
	if pods, booted, err := readCheckpoint(dir, "dgx-1"); err != nil || !booted || pods != nil {
		t.Fatalf("without a file: pods %v, booted %t, %v", pods, booted, err)
	}
	node := DGXA100("dgx-1", "dgx")
	s, err := devices.New(discoveredDevices(t, node), nil).Admit(
		devices.Pod{UID: "a", Namespace: "n", Name: "p"}, podDemands(newTestPod("a", newContainer("main", "nvidia.com/gpu", "2"))))
	if err != nil {
		t.Fatal(err)
	}
	// A crash between write and rename leaves this file.
	path := filepath.Join(dir, checkpointName)
	if err := os.WriteFile(path+".next", []byte("torn, and longer than the new content: "+strings.Repeat("x", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeCheckpoint(dir, "dgx-1", s); err != nil {
		t.Fatal(err)
	}
	pods, booted, err := readCheckpoint(dir, "dgx-1")
	if err != nil || booted {
		t.Fatalf("booted %t, %v", booted, err)
	}
	if diff := cmp.Diff(s.Pods(), pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v has mode %v, want 0600 (%v)", path, info.Mode().Perm(), err)
	}
	if err := writeCheckpoint(filepath.Join(dir, "missing"), "dgx-1", s); err == nil {
		t.Error("writeCheckpoint into a missing folder succeeded")
	}
}

// discoveredDevices returns the devices that the plugin reports of a new machine.
func discoveredDevices(tb testing.TB, node Node) []devices.Device {
	tb.Helper()
	kept, err := newGPUState(node)
	if err != nil {
		tb.Fatal(err)
	}
	gpus, err := simulator.New(node.Machine.Simulator(node.Name))
	if err := errors.Join(err, gpus.Restore(kept), gpus.Init()); err != nil {
		tb.Fatal(err)
	}
	read, err := devices.ReadGPUs(gpus, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return devices.OfGPUs(read)
}

// offlineConfig returns the configuration of a node whose API server is never called.
func offlineConfig(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{
		Dir:   dir,
		Nodes: []Node{DGXA100("dgx-1", "dgx")},
		API:   &rest.Config{Host: "http://127.0.0.1:1"},
	}
}

func TestRunRejectsInvalidConfig(t *testing.T) {
	t.Run("an invalid checkpoint", func(t *testing.T) {
		c := offlineConfig(t)
		dir := nodeDir(c.Dir, "dgx-1")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, checkpointName)
		if err := os.WriteFile(path, []byte(`{"checksum":"`), 0o600); err != nil {
			t.Fatal(err)
		}
		assertRunFails(t, c, path, "is invalid", "delete the pods on node dgx-1 and remove the file")
	})
	t.Run("invalid GPUs", func(t *testing.T) {
		c := offlineConfig(t)
		dir := nodeDir(c.Dir, "dgx-1")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, gpusName)
		if err := os.WriteFile(path, []byte(`{"version":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		assertRunFails(t, c, path, "are invalid", "restore a valid copy, or remove the file")
	})
	t.Run("a node of another process", func(t *testing.T) {
		c := offlineConfig(t)
		dir := nodeDir(c.Dir, "dgx-1")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := process.TryLock(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Unlock() }()
		assertRunFails(t, c, "node dgx-1", "only one process", "is locked by process")
	})
	t.Run("a folder too long for a socket", func(t *testing.T) {
		c := offlineConfig(t)
		c.Dir = filepath.Join(c.Dir, strings.Repeat("d", 60))
		assertRunFails(t, c, "dir "+`"`+c.Dir, "bytes too long", "choose a shorter one")
	})
	t.Run("an invalid configuration", func(t *testing.T) {
		c := offlineConfig(t)
		c.Nodes[0].Machine.GPUs = 99
		assertRunFails(t, c, "nodes[0].machine.gpus 99")
	})
	t.Run("no API server", func(t *testing.T) {
		c := offlineConfig(t)
		c.API = nil
		assertRunFails(t, c, "Config.API is nil")
	})
}

// assertRunFails fails the test unless Run returns an error with all these texts.
func assertRunFails(t *testing.T, c Config, words ...string) {
	t.Helper()
	err := Run(t.Context(), c)
	if err == nil {
		t.Fatal("Run returned no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error is %q, want %q in it", err, word)
		}
	}
}

func TestRunReplacesStaleSocket(t *testing.T) {
	path, err := socketPath(offlineConfig(t).Dir, "dgx-1")
	if err != nil {
		t.Fatal(err)
	}
	stale, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	// A killed process closes its socket and leaves the file.
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	if _, err := net.Dial("unix", path); err == nil {
		t.Fatal("the stale socket accepts connections")
	}
	fresh, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if connection, err := net.Dial("unix", path); err != nil {
		t.Errorf("connect to the new socket: %v", err)
	} else {
		connection.Close()
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, want 0600 (%v)", info.Mode().Perm(), err)
	}
}
