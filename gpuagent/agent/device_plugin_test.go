// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/gpuagent/host"
)

// startFakeDaemon starts a process that prints a line for each SIGHUP, and adds it to a procfs.
func startFakeDaemon(t *testing.T, proc string, words ...string) *bufio.Scanner {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args, cmd.Env = words, append(os.Environ(), "SLUICE_TEST_PLUGIN=1")
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
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("no output from the process")
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink("/proc/"+pid, filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	return lines
}

// If only some processes could be signaled, those are not signaled again in each pass: they would never
// finish enumerating.
func TestDevicePluginIsNotReloadedForHungGPU(t *testing.T) {
	proc := t.TempDir()
	startFakeDaemon(t, proc, "nvidia-device-plugin")
	odd := filepath.Join(proc, "7000001") // its status lacks the signal mask
	if err := errors.Join(os.Mkdir(odd, 0o700), os.WriteFile(filepath.Join(odd, "cmdline"), []byte("nvidia-device-plugin\x00"), 0o600),
		os.WriteFile(filepath.Join(odd, "status"), []byte("Name:\tx\n"), 0o600)); err != nil {
		t.Fatal(err)
	}

	a := &reconciler{log: logr.Discard(), cfg: &Config{Intervals: Intervals{Retry: metav1.Duration{Duration: time.Hour}}}}
	a.plugin = devicePlugin{Daemon: host.Daemon{Proc: proc, Command: "nvidia-device-plugin"}, stateDir: t.TempDir()}
	a.layout.recovered = true
	if err := a.plugin.load(); err != nil {
		t.Fatal(err)
	}
	l := newObservation(1, newObservedGPU(gpu1, "MIG-a"))
	if err := a.reconcileDevicePlugin(l); err == nil || a.plugin.retryAt.IsZero() {
		t.Fatalf("error %v, retry at %v", err, a.plugin.retryAt)
	}
	if err := os.RemoveAll(odd); err != nil {
		t.Fatal(err)
	}
	if err := a.reconcileDevicePlugin(l); err == nil {
		t.Error("reloaded again at once")
	}
	a.plugin.retryAt = time.Now().Add(-time.Second)
	if err := a.reconcileDevicePlugin(l); err != nil || len(a.plugin.changedGPUs(l)) != 0 {
		t.Errorf("%v", err)
	}
}

// After an agent that ends between a change and the signal, the next one sends the signal, even if the
// devices have the same UUIDs as before.
func TestNextAgentReloadsDevicePlugin(t *testing.T) {
	s := &devicePlugin{stateDir: t.TempDir()}
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	l := newObservation(1, newObservedGPU(gpu1, "MIG-a"))
	if err := s.save(s.changedGPUs(l)); err != nil {
		t.Fatal(err)
	}
	if err := s.invalidate(); err != nil {
		t.Fatal(err)
	}
	next := &devicePlugin{stateDir: s.stateDir}
	if err := next.load(); err != nil || len(next.changedGPUs(l)) != 1 {
		t.Errorf("%v, %v", next.changedGPUs(l), err)
	}
	if err := next.invalidate(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if _, err := os.Stat(s.path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// dcgm-exporter is reloaded after each change, but not within the time in which it ignores the signal.
func TestDCGMExporterIsReloaded(t *testing.T) {
	proc := t.TempDir()
	plugin, exporter := startFakeDaemon(t, proc, "nvidia-device-plugin"), startFakeDaemon(t, proc, "/usr/bin/dcgm-exporter", "-f", "x")
	r := &reconciler{
		log: logr.Discard(), cfg: &Config{}, layout: layoutState{recovered: true},
		plugin:   devicePlugin{Daemon: host.Daemon{Proc: proc, Command: "nvidia-device-plugin"}, stateDir: t.TempDir()},
		exporter: dcgmExporter{Daemon: host.Daemon{Proc: proc, Command: "dcgm-exporter"}},
	}
	pass := func(devices ...string) {
		t.Helper()
		if err := r.reconcileOffer(newObservation(1, newObservedGPU(gpu1, devices...))); err != nil {
			t.Fatal(err)
		}
		r.reconcileDCGMExporter()
	}
	if err := r.plugin.load(); err != nil {
		t.Fatal(err)
	}
	pass("MIG-a")
	if !plugin.Scan() || !exporter.Scan() || exporter.Text() != "hangup" || r.exporter.outdated {
		t.Errorf("first: %q, outdated %v", exporter.Text(), r.exporter.outdated)
	}
	sentAt := r.exporter.retryAt
	pass("MIG-a")
	if r.exporter.outdated || r.exporter.retryAt != sentAt {
		t.Error("reloaded without a change")
	}
	pass("MIG-b")
	if !plugin.Scan() || !r.exporter.outdated {
		t.Error("a change at once is forgotten")
	}
	r.exporter.retryAt = time.Now()
	pass("MIG-b")
	if !exporter.Scan() || exporter.Text() != "hangup" || r.exporter.outdated {
		t.Errorf("after the interval: %q, outdated %v", exporter.Text(), r.exporter.outdated)
	}
	r.exporter.Command, r.exporter.retryAt = "none", time.Now()
	pass("MIG-c")
	if r.exporter.outdated || r.exporter.failed {
		t.Error("a node without dcgm-exporter waits for one")
	}
}
