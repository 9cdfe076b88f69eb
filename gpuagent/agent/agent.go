// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// Run runs the agent on a driver until ctx ends, and then returns nil. It returns an error if the agent
// cannot start. A missing driver or a lost GPU is no such error: the agent reports it in the GPUNode
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
	mgr, err := newManager(ctx, cfg, logger)
	if err != nil {
		return err
	}
	if err := newReconciler(mgr, cfg, library, kubelet, journal, logger).addTo(ctx, mgr); err != nil {
		return err
	}
	logger.Info("Starting gpuagent", "version", api.Version, "node", cfg.NodeName, "boot", boot)
	return mgr.Start(ctx)
}

func newReconciler(mgr ctrl.Manager, cfg *Config, driver nvml.Library, kubelet *devices.Kubelet, journal *partition.Journal,
	logger logr.Logger,
) *reconciler {
	library := &nvml.MonitoredLibrary{Driver: driver, OnReturn: recordCall}
	r := &reconciler{
		cfg: cfg, log: logger.WithName("agent"), cached: mgr.GetClient(), library: library,
		engine:        &partition.Engine{Library: library, Journal: journal, Log: logger.WithName("driver")},
		liveHolders:   &devices.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetAPIReader(), Library: library, Nominated: true},
		cachedHolders: &devices.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetClient(), Library: library},
		nodes:         deviceNodes{CapabilityNodes: host.CapabilityNodes{Proc: cfg.Proc, Host: cfg.HostRoot, Driver: cfg.onHost(cfg.DriverRoot)}},
		plugin: devicePlugin{
			Daemon: host.Daemon{Name: "device plugin", Proc: cfg.Proc, Command: cfg.DevicePlugin.Command}, stateDir: cfg.StateDir,
		},
		exporter: dcgmExporter{Daemon: host.Daemon{Name: "dcgm-exporter", Proc: cfg.Proc, Command: cfg.DCGMExporter.Command}},
		writer:   &status.Writer{Node: cfg.NodeName, Live: mgr.GetAPIReader(), Status: mgr.GetClient().Status()},
		events:   mgr.GetEventRecorder(v1alpha1.FieldManagerGPUAgent),
		wakeup:   make(chan struct{}, 1),
	}
	r.inventory = &status.Inventory{Library: library, Running: r.engine.Running, Proc: cfg.Proc}
	r.engine.OpenBy, r.engine.ReloadMonitoring = r.openBy, r.reloadMonitoring
	r.hungCalls = hungCallReporter{
		library: library, timeout: cfg.Intervals.CallTimeout.Duration, node: r.gpuNode, writer: r.writer, log: r.log,
	}
	return r
}

// addTo adds the agent's goroutines, event handlers and health checks to the manager.
func (r *reconciler) addTo(ctx context.Context, mgr ctrl.Manager) error {
	if err := r.addEventHandlers(ctx, mgr.GetCache()); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{r.start, r.hungCalls.start, r.serveStatus} {
		if err := mgr.Add(withoutElection(start)); err != nil {
			return err
		}
	}
	observed := func(*http.Request) error {
		if r.snapshot.Load() == nil {
			return errNotObserved
		}
		return nil
	}
	if err := base.AddHealthChecks(mgr, map[string]healthz.Checker{"observed": observed}); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("driver", r.hungCalls.check)
}

var errNotObserved = errors.New("the agent has not observed the GPUs yet")

// withoutElection is a function that the manager starts without leader election.
type withoutElection func(context.Context) error

// Start implements manager.Runnable.
func (e withoutElection) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (withoutElection) NeedLeaderElection() bool { return false }

// newManager returns a manager that caches only this node's pods and its GPUNode.
func newManager(ctx context.Context, cfg *Config, logger logr.Logger) (ctrl.Manager, error) {
	rest, err := cfg.RESTConfig()
	if err != nil {
		return nil, err
	}
	options, err := cfg.ManagerOptions(logger)
	if err != nil {
		return nil, err
	}
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		// The agent only reads pods, so it needs no copies of them.
		&corev1.Pod{}: {
			Field: fields.OneTermEqualSelector(devices.FieldNodeName, cfg.NodeName), Transform: trimPod,
			UnsafeDisableDeepCopy: ptr.To(true),
		},
		&v1alpha1.GPUNode{}: {Field: fields.OneTermEqualSelector("metadata.name", cfg.NodeName)},
	}
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	mgr, err := ctrl.NewManager(rest, options)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, devices.FieldNodeName, func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
}

// trimPod removes from a pod what the agent does not read.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.Annotations = nil, nil
	pod.Spec.Volumes, pod.Spec.Affinity, pod.Spec.Tolerations = nil, nil, nil
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, StartTime: pod.Status.StartTime}
	return pod, nil
}

// addEventHandlers triggers a reconciliation when the GPUNode's spec changes, and when a pod is added,
// deleted, acknowledged by the kubelet or enters another phase.
func (r *reconciler) addEventHandlers(ctx context.Context, source cache.Cache) error {
	nodes, err := source.GetInformer(ctx, &v1alpha1.GPUNode{})
	if err != nil {
		return err
	}
	if _, err := nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.cancelSuperseded(o.(*v1alpha1.GPUNode)); r.trigger() },
		DeleteFunc: func(any) { r.cancelSuperseded(nil); r.trigger() },
		UpdateFunc: func(before, after any) {
			r.cancelSuperseded(after.(*v1alpha1.GPUNode))
			if before.(*v1alpha1.GPUNode).Generation != after.(*v1alpha1.GPUNode).Generation {
				r.trigger()
			}
		},
	}); err != nil {
		return err
	}
	pods, err := source.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.trigger() },
		DeleteFunc: func(any) { r.trigger() },
		UpdateFunc: func(before, after any) {
			was, is := before.(*corev1.Pod).Status, after.(*corev1.Pod).Status
			if was.Phase != is.Phase || (was.StartTime == nil) != (is.StartTime == nil) {
				r.trigger()
			}
		},
	})
	return err
}
