// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// Each process is killed and must restart, and the cluster must work again. Guards invariant
// 8 of the design: the next start completes interrupted work.
func TestComponentsRecoverFromKill(t *testing.T) {
	s := newDedicatedCluster(t)
	before, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Components) != 11 { // two of them are node agents
		t.Fatalf("%d components run, want 11: %+v", len(before.Components), before.Components)
	}
	for _, victim := range before.Components {
		t.Run(victim.Name, func(t *testing.T) {
			if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			clustertest.EventuallyWithin(t, restartTimeout, func() error { return s.restarted(t.Context(), victim.Name, victim.PID) })
			p := newProject("after-" + victim.Name)
			clustertest.EventuallyWithin(t, restartTimeout, func() error {
				return client.IgnoreAlreadyExists(s.adminClient.Create(t.Context(), p.DeepCopy()))
			})
			clustertest.EventuallyWithin(t, restartTimeout, func() error {
				if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
					return err
				}
				return checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
			})
		})
	}
}

// `sluice down` leaves no process, port or file, after a regular stop and after the
// supervising process was killed.
func TestDownRemovesEverything(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"after a regular stop": false, "after the supervisor was killed": true} {
		t.Run(name, func(t *testing.T) {
			s := newDedicatedCluster(t)
			r, err := s.readReport(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if kill {
				if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			// The supervisor of the test would start it again.
			if err := s.stop(); err != nil && !kill {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), s.binary, "down", "--dir", s.dir).CombinedOutput(); err != nil {
				t.Fatalf("sluice down: %v\n%s", err, out)
			}
			if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
				t.Errorf("the folder still exists: %v", err)
			}
			for _, c := range r.Components {
				clustertest.Eventually(t, func() error { return checkProcessGone(c.PID, s.dir) })
			}
			server, err := url.Parse(r.Server)
			if err != nil {
				t.Fatal(err)
			}
			var dialer net.Dialer
			if connection, err := dialer.DialContext(t.Context(), "tcp", server.Host); err == nil {
				connection.Close()
				t.Errorf("the server still listens on %s", server.Host)
			}
		})
	}
}

// A second `sluice up` on an existing folder finds the stored objects.
func TestUpResumesExistingCluster(t *testing.T) {
	s := newDedicatedCluster(t)
	if err := s.adminClient.Create(t.Context(), newProject("remembered")); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	again, err := startSluice(t.Context(), filepath.Dir(s.binary), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.teardown(t) })
	p := newProject("remembered")
	if err := again.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Errorf("after the second start: %v", err)
	}
}

// restartTimeout covers the delay before a component restarts, its start, and the growing
// retry delays of the others: more than half a minute if the API server was down. The
// components run without leader election, so no Lease has to expire.
const restartTimeout = 4 * time.Minute

// newDedicatedCluster starts a cluster that the test may damage. Without flags it has two
// nodes, and TestPasses lends the shared one.
func newDedicatedCluster(t *testing.T, flags ...string) *sluiceCluster {
	t.Helper()
	if lendShared && len(flags) == 0 {
		return sharedCluster
	}
	t.Parallel() // the test mostly waits
	return newUnsharedCluster(t, flags...)
}

// newUnsharedCluster is newDedicatedCluster for benchmarks, and for tests that keep all processors busy, which would
// exceed the time limits of requests in the tests beside them.
func newUnsharedCluster(t testing.TB, flags ...string) *sluiceCluster {
	t.Helper()
	if len(flags) == 0 {
		flags = []string{"--nodes", "2"}
	}
	dir, err := os.MkdirTemp("/tmp", "sluice-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := startSluice(t.Context(), filepath.Dir(sharedCluster.binary), filepath.Join(dir, "own"), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.teardown(t) })
	return s
}

// teardown stops the cluster if the test has not stopped it already.
func (s *sluiceCluster) teardown(t testing.TB) {
	if err := s.stop(); err != nil {
		t.Log(err)
	}
}

func (s *sluiceCluster) restarted(ctx context.Context, name string, former int) error {
	r, err := s.readReport(ctx)
	if err != nil {
		return err
	}
	for _, c := range r.Components {
		if c.Name == name {
			if c.State == "Running" && c.PID != former && c.PID != 0 {
				return nil
			}
			return fmt.Errorf("%s is %s, process %d (was %d)", name, c.State, c.PID, former)
		}
	}
	return fmt.Errorf("%s is not in the report", name)
}

// checkProcessGone returns an error if the process still runs with dir in its command line.
func checkProcessGone(pid int, dir string) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil && strings.Contains(string(raw), dir) {
		return fmt.Errorf("process %d still runs: %s", pid, strings.ReplaceAll(string(raw), "\x00", " "))
	}
	return nil
}
