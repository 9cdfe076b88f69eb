// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"sluice.dev/test/lab/cluster/process"
)

func startCluster(t *testing.T, dir string, keep bool) *Cluster {
	t.Helper()
	begin := time.Now()
	c, err := Start(t.Context(), Options{Dir: dir, KeepData: keep, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(begin).Round(10*time.Millisecond))
	t.Cleanup(func() { c.Stop() })
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	t.Logf("stopped in %s", time.Since(begin).Round(10*time.Millisecond))
	if err := c.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func client(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := loadConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func componentStatus(t *testing.T, c *Cluster, name string) process.Status {
	t.Helper()
	for _, s := range c.Processes().List() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no component %s", name)
	return process.Status{}
}

func eventually(t *testing.T, condition func() error) {
	t.Helper()
	const within = 5 * time.Minute // on a machine on which much else runs
	deadline := time.Now().Add(within)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", within, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func readFiles(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// resourceUsage lists the processes and ports of a running cluster.
type resourceUsage struct {
	pids  map[string]int
	ports ports
}

func usageOf(t *testing.T, c *Cluster) resourceUsage {
	t.Helper()
	f := resourceUsage{pids: map[string]int{}, ports: c.folder.state.Ports}
	for _, s := range c.Processes().List() {
		f.pids[s.Name] = s.PID
	}
	if len(f.pids) < len(controlPlaneComponents) {
		t.Fatalf("processes %v", f.pids)
	}
	return f
}

// assertReleased fails the test if a process or port remains.
func (f resourceUsage) assertReleased(t *testing.T) {
	t.Helper()
	for name, pid := range f.pids {
		left, err := os.FindProcess(pid)
		if err == nil {
			err = left.Signal(syscall.Signal(0))
		}
		if !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s, process %d, remains (%v)", name, pid, err)
		}
	}
	for _, port := range []int{f.ports.APIServer, f.ports.Etcd, f.ports.EtcdPeer, f.ports.ControllerManager, f.ports.Scheduler} {
		if err := portFree(port); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
}
