// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	base "sluice.dev/api/config"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// Run runs the agent on a driver until ctx ends, and then returns nil. It waits for the API server and the CRD
// of GPUNodes. It returns an error if the agent cannot start. A missing driver or a lost GPU is no such error: the agent reports it in the GPUNode
// and tries again.
func Run(ctx context.Context, cfg *Config, library nvml.Library, logger logr.Logger) error {
	if err := run(ctx, cfg, library, logger); err != nil {
		return fmt.Errorf("run gpuagent: %w", err)
	}
	return nil
}

func run(ctx context.Context, cfg *Config, library nvml.Library, logger logr.Logger) error {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("create the state directory (stateDir): %w", err)
	}
	boot, err := host.BootID(cfg.Proc)
	if err != nil {
		return fmt.Errorf("read the host's procfs (proc: %s): %w", cfg.Proc, err)
	}
	store, err := partition.OpenJournalDir(cfg.Journal())
	if err != nil {
		return err
	}
	defer store.Close()
	journal, err := partition.OpenJournal(store, cfg.NodeName, boot)
	if err != nil {
		return err
	}
	kubelet, err := devices.NewKubelet(cfg.PodResources)
	if err != nil {
		return err
	}
	defer kubelet.Close()
	connection, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	client, err := newKubeClient(connection, cfg.NodeName)
	if err != nil {
		return err
	}
	if err := cfg.WaitForKinds(ctx, connection, logger, kindGPUNode); err != nil || ctx.Err() != nil {
		return err
	}
	r := newReconciler(client, cfg, library, kubelet, journal, logger)
	endpoints, err := r.listen(ctx, client)
	if err != nil {
		return err
	}
	logger.Info("Starting gpuagent", "version", base.Version, "node", cfg.NodeName, "boot", boot)
	return r.run(ctx, endpoints)
}

// kindGPUNode is the only kind of Sluice that the agent uses.
const kindGPUNode = "GPUNode"

func newReconciler(client *kubeClient, cfg *Config, driver nvml.Library, kubelet *devices.Kubelet, journal *partition.Journal,
	logger logr.Logger,
) *reconciler {
	library := &nvml.MonitoredLibrary{Driver: driver, OnReturn: recordCall}
	r := &reconciler{
		cfg: cfg, log: logger.WithName("agent"), library: library,
		engine: &partition.Engine{Library: library, Journal: journal, Log: logger.WithName("driver")},
		liveHolders: &devices.Reader{
			Node: cfg.NodeName, Kubelet: kubelet, Library: library,
			ListBound: client.listPods(devices.FieldNodeName), ListNominated: client.listPods(devices.FieldNominatedNode),
		},
		nodes: deviceNodes{CapabilityNodes: host.CapabilityNodes{Proc: cfg.Proc, Host: cfg.HostRoot, Driver: cfg.onHost(cfg.DriverRoot)}},
		plugin: devicePlugin{
			Daemon: host.Daemon{Name: "device plugin", Proc: cfg.Proc, Command: cfg.DevicePlugin.Command}, stateDir: cfg.StateDir,
		},
		exporter: dcgmExporter{Daemon: host.Daemon{Name: "dcgm-exporter", Proc: cfg.Proc, Command: cfg.DCGMExporter.Command}},
		writer:   &status.Writer{Node: cfg.NodeName, Client: client, UseInterval: cfg.Intervals.Report.Duration},
		events:   newEventRecorder(client, logger.WithName("events")),
		wakeup:   make(chan struct{}, 1),
	}
	r.cache = newNodeCache(client, r.onGPUNode(), r.onPod())
	r.cachedHolders = &devices.Reader{Node: cfg.NodeName, Kubelet: kubelet, Library: library, ListBound: r.cache.boundPods}
	exporter := &exporterReader{
		log: logger.WithName("dcgm-exporter"), pods: r.cache.boundPods, namespaces: cfg.DCGMExporter.Namespaces,
		interval: cfg.DCGMExporter.Interval.Duration,
	}
	r.sampler = &sampler{
		log: logger.WithName("sampler"), exporter: exporter, library: library, interval: cfg.Intervals.Sample.Duration, published: r.cache.gpuNode, resolver: host.PodResolver{Proc: cfg.Proc},
		instances: func(gpu string) map[uint32]int { _, starts := r.engine.Running(gpu); return starts },
	}
	r.sampler.shares.MaxGap = max(minShareGap, 2*cfg.Intervals.Sample.Duration+readTimeout)
	r.inventory = &status.Inventory{Library: library, Running: r.engine.Running, ProcessOwner: r.sampler.processOwner}
	r.engine.OpenBy, r.engine.ReloadMonitoring = r.openBy, r.reloadMonitoring
	r.hungCalls = hungCallReporter{
		library: library, timeout: cfg.Intervals.CallTimeout.Duration, node: r.cache.gpuNode, writer: r.writer, log: r.log,
	}
	return r
}

const (
	// syncPollInterval is the interval at which the agent checks whether its cache is filled.
	syncPollInterval = 100 * time.Millisecond
	// endTimeout limits the wait for the agent's goroutines at its end. A hung driver call outlasts it.
	endTimeout = 30 * time.Second
)

// run runs the agent's goroutines until ctx ends or one of them fails. The endpoints answer from the
// start until the others have ended; the reconciler starts once the cache is filled.
func (r *reconciler) run(ctx context.Context, endpoints []func(context.Context) error) error {
	all, ctx := errgroup.WithContext(ctx)
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	for _, serve := range endpoints {
		all.Go(func() error { return serve(serving) })
	}
	for _, informer := range r.cache.informers {
		all.Go(func() error { informer.RunWithContext(ctx); return nil })
	}
	all.Go(func() error {
		defer endServing()
		for !r.cache.synced() {
			if !sleep(ctx, syncPollInterval, nil) {
				return nil
			}
		}
		var tasks sync.WaitGroup
		defer tasks.Wait()
		for _, start := range []func(context.Context) error{r.start, r.sampler.start, r.sampler.exporter.start, r.hungCalls.start, r.serveStatus, r.events.start} {
			tasks.Add(1)
			all.Go(func() error { defer tasks.Done(); return start(ctx) })
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- all.Wait() }()
	<-ctx.Done() // Also when all goroutines have ended.
	select {
	case err := <-ended:
		return err
	case <-time.After(endTimeout):
		return fmt.Errorf("a driver call hangs; ended without it after %s (%w)", endTimeout, context.Cause(ctx))
	}
}
