// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// agent is a node's agent. What is not said to be otherwise belongs to its loop alone.
type agent struct {
	cfg    *Config
	log    logr.Logger
	cached client.Reader

	library     nvml.Library // watched
	callMonitor *nvml.CallMonitor
	engine      *partition.Engine
	kubelet     *devices.Kubelet
	// liveHolders reads who has what for a decision, seen for a report.
	liveHolders, cachedHolders *devices.Reader
	inventory                  *status.Inventory
	devicePlugin               host.DevicePlugin
	writer                     *status.Writer
	events                     events.EventRecorder

	connection  connection
	layoutState layoutState
	pluginState pluginState
	wakeup      chan struct{}
	// lastObserved is how the GPUs were at the last look.
	lastObserved []v1alpha1.ObservedGPU

	// applying is the spec that is being carried out, nil while none is; any goroutine may
	// have it given up.
	applying atomic.Pointer[applyingSpec]
	// snapshot is the last picture; read by the socket and by the metrics.
	snapshot atomic.Pointer[status.Node]
}

func newAgent(mgr ctrl.Manager, cfg *Config, library nvml.Library, book *partition.Journal, logger logr.Logger) (*agent, error) {
	kubelet, err := devices.NewKubelet(cfg.PodResources)
	if err != nil {
		return nil, err
	}
	calls := &nvml.CallMonitor{OnReturn: recordCall}
	library = nvml.MonitoredLibrary{Driver: library, Monitor: calls}
	a := &agent{
		cfg: cfg, log: logger.WithName("agent"), cached: mgr.GetClient(),
		library: library, callMonitor: calls,
		engine:        &partition.Engine{Library: library, Journal: book, Log: logger.WithName("driver")},
		kubelet:       kubelet,
		liveHolders:   &devices.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetAPIReader(), Library: library},
		cachedHolders: &devices.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetClient(), Library: library},
		inventory:     &status.Inventory{Library: library, Proc: cfg.Proc},
		devicePlugin:  host.DevicePlugin{Proc: cfg.Proc, Command: cfg.DevicePlugin.Command},
		writer:        &status.Writer{Node: cfg.NodeName, Live: mgr.GetAPIReader(), Status: mgr.GetClient().Status()},
		events:        mgr.GetEventRecorder(v1alpha1.FieldManagerGPUAgent),
		pluginState:   pluginState{dir: cfg.StateDir},
		wakeup:        make(chan struct{}, 1),
	}
	return a, nil
}

func (a *agent) close() { _ = a.kubelet.Close() }

// trigger has the loop look at once; from any goroutine.
func (a *agent) trigger() {
	select {
	case a.wakeup <- struct{}{}:
	default: // it will
	}
}

// checkObserved is an error until the agent has looked at the node once.
func (a *agent) checkObserved() error {
	if a.snapshot.Load() == nil {
		return errors.New("the agent has not looked at the GPUs yet")
	}
	return nil
}

// minObserveInterval is the least time between two looks: many pods may come at once.
const minObserveInterval = 200 * time.Millisecond

// run looks at the node again and again until ctx ends.
func (a *agent) run(ctx context.Context) error {
	if err := a.pluginState.load(); err != nil {
		a.log.Error(err, "what the device plugin was last told is not known; it is told again")
	}
	for ctx.Err() == nil {
		wait := a.reconcile(ctx)
		if sleep(ctx, minObserveInterval, nil) {
			sleep(ctx, max(wait-minObserveInterval, 0), a.wakeup)
		}
	}
	// What else waits for the driver is ended with the process.
	return nil
}

// sleep waits, but no longer than until it is woken; false where ctx ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// Run runs the agent on a driver until ctx ends. It returns nil when it stopped because of that,
// and an error that says what to do when it cannot start. A driver that is missing, or
// a GPU that is lost, is no such error: the GPUNode says so, and it is tried again.
func Run(ctx context.Context, cfg *Config, library nvml.Library, logger logr.Logger) error {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("gpuagent: the folder of its state (stateDir): %w", err)
	}
	boot, err := host.BootID(cfg.Proc)
	if err != nil {
		return fmt.Errorf("gpuagent: the host's procfs (proc: %s): %w", cfg.Proc, err)
	}
	disk, err := partition.OpenJournalDir(cfg.Journal())
	if err != nil {
		return fmt.Errorf("gpuagent: %w", err)
	}
	defer disk.Close()
	book, err := partition.OpenJournal(disk, cfg.NodeName, boot)
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
	if err := a.addEventHandlers(ctx, mgr.GetCache()); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{a.run, a.reportHungDriver, a.serveStatus} {
		if err := mgr.Add(withoutElection(part)); err != nil {
			return err
		}
	}
	err := base.AddHealthChecks(mgr, map[string]healthz.Checker{"looked": func(*http.Request) error { return a.checkObserved() }})
	if err != nil {
		return err
	}
	return mgr.AddHealthzCheck("driver", func(*http.Request) error { return a.callMonitor.HungCall(a.cfg.Intervals.CallTimeout.Duration) })
}

// withoutElection is a part of the agent that runs without an election.
type withoutElection func(context.Context) error

// Start implements manager.Runnable.
func (e withoutElection) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (withoutElection) NeedLeaderElection() bool { return false }
