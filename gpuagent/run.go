// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/procfs"
)

// Run runs the agent on a driver until ctx ends. It returns nil when it stopped because of that,
// and an error that says what to do when it cannot start. A driver that is missing, or
// a GPU that is lost, is no such error: the GPUNode says so, and it is tried again.
func Run(ctx context.Context, cfg *config.Config, library nvml.Library, logger logr.Logger) error {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("gpuagent: the folder of its state (stateDir): %w", err)
	}
	boot, err := procfs.BootID(cfg.Proc)
	if err != nil {
		return fmt.Errorf("gpuagent: the host's procfs (proc: %s): %w", cfg.Proc, err)
	}
	disk, err := journal.OpenDir(cfg.Journal())
	if err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	defer disk.Close()
	book, err := journal.Open(disk, cfg.NodeName, boot)
	if err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	mgr, err := newManager(ctx, cfg, logger)
	if err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	a, err := newAgent(mgr, cfg, library, book, logger)
	if err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	defer a.close()
	if err := a.addTo(ctx, mgr); err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	logger.Info("starting", "version", api.Version, "node", cfg.NodeName, "boot", boot)
	return mgr.Start(ctx)
}

// addTo has the manager run the agent's parts and answer for their health.
func (a *agent) addTo(ctx context.Context, mgr ctrl.Manager) error {
	if err := a.watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{a.loop, a.guard, a.serve} {
		if err := mgr.Add(everywhere(part)); err != nil {
			return err
		}
	}
	err := base.AddHealth(mgr, map[string]healthz.Checker{"looked": func(*http.Request) error { return a.looked() }})
	if err != nil {
		return err
	}
	return mgr.AddHealthzCheck("driver", func(*http.Request) error { return a.calls.Stuck(a.cfg.Intervals.Stuck.Duration) })
}

// everywhere is a part of the agent that runs without an election.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
