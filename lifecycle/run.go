// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is the controller that keeps what people declared true.
//
// Enters: Projects, Departments, NodePools, Nodes and Namespaces, as watched, and
// the policies. Leaves: each Project's namespace with the objects that policies
// render into it, its quotas, and with its labels; the queues of projects,
// departments and node pools in the engines of the pools; the currency in which GPUs are
// counted on each node; the waking of workloads that wait outside for quota; and
// the status of Projects, Departments and NodePools. [Run] is the composition
// root; each folder below is one controller or the thinking behind one.
//
// It never chooses a node, never keeps a queue, and never deletes a namespace
// that it did not make or that holds somebody's volumes.
package lifecycle

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/migplan/gpunode"
	"sluice.dev/lifecycle/migplan/planner"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/quota/capacity"
	"sluice.dev/lifecycle/quota/kaifallback"
	"sluice.dev/lifecycle/quota/pending"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/queues"
	"sluice.dev/lifecycle/tenancy/department"
	"sluice.dev/lifecycle/tenancy/nodepool"
	"sluice.dev/lifecycle/tenancy/policystatus"
	"sluice.dev/lifecycle/tenancy/project"
	"sluice.dev/lifecycle/tenancy/rbac"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

// leaderElectionID is the name of the Lease.
const leaderElectionID = "sluice-lifecycle"

// Run runs the lifecycle controller until ctx ends. It returns nil when it
// stopped because of that, and an error that says what to do when it cannot
// start or loses its leadership.
func Run(ctx context.Context, cfg *config.Config, logger logr.Logger) error {
	rest, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	policyTime, err := cfg.Clock(logger)
	if err != nil {
		return err
	}
	options, err := cfg.ManagerOptions(logger)
	if err != nil {
		return err
	}
	options.LeaderElection = !cfg.LeaderElection.Disabled
	options.LeaderElectionID = leaderElectionID
	options.LeaderElectionNamespace = cfg.LeaderElection.Namespace
	options.LeaderElectionReleaseOnCancel = true
	options.Cache.ByObject = cacheByObject()
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	setMemoryLimit()
	mgr, err := ctrl.NewManager(rest, options)
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	if err := inventory.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	inForce, err := engine.New(engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	builtIn := policies.BuiltIn()
	keeper := &store.Store{Engine: inForce, BuiltIn: builtIn, Logger: logger.WithName("policies")}
	if err := keeper.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	engines, err := apply.NewQueueWatcher(mgr.GetConfig(), mgr.GetHTTPClient(), apply.QueueWatcherOptions{
		Kinds: apply.QueueKinds(), Logger: logger.WithName("engines"),
	})
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	if err := mgr.Add(engines); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	rendered := queues.Manager{
		Client:        mgr.GetClient(),
		Live:          mgr.GetAPIReader(),
		Policies:      inForce,
		PolicyChanges: keeper,
		Queues:        engines,
		Cache:         &apply.Cache{},
	}
	rights := rbac.Manager{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	pods, err := addTimeLimitControllers(mgr, cfg, policyTime, logger)
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	if err := addNotificationControllers(mgr, cfg, policyTime); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	controllers := []interface{ SetupWithManager(ctrl.Manager) error }{
		&nodepool.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Policies: inForce, PolicyChanges: keeper},
		&capacity.Reconciler{Client: mgr.GetClient()},
		&gpunode.Reconciler{Client: mgr.GetClient()},
		&planner.Reconciler{
			Client: mgr.GetClient(),
			Live:   mgr.GetAPIReader(),
			Events: mgr.GetEventRecorder(v1alpha1.FieldManagerPlanner),
		},
		&department.Reconciler{Client: mgr.GetClient()},
		&admissionpolicy.Reconciler{Client: mgr.GetClient(), Settings: admissionpolicy.Settings{
			Identities:         admissionpolicy.Identities(cfg.Identities),
			DeviceClasses:      cfg.DeviceClasses,
			DenyGPUPodsOutside: cfg.GPUPodsOutside == config.Deny,
		}},
		&policystatus.Reconciler{Client: mgr.GetClient(), BuiltIn: builtIn, Reports: keeper},
		&project.Reconciler{
			Client:        mgr.GetClient(),
			Live:          mgr.GetAPIReader(),
			Policies:      inForce,
			PolicyChanges: keeper,
			Queues:        engines,
			Events:        mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
			Clock:         policyTime,
			Access:        &rights,
		},
		&queues.DepartmentReconciler{Manager: rendered},
		&queues.NodePoolReconciler{Manager: rendered},
		&rbac.ProjectReconciler{Manager: rights},
		&rbac.DepartmentReconciler{Manager: rights},
		&kaifallback.Reconciler{
			Client: mgr.GetClient(),
			Live:   mgr.GetAPIReader(),
			Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
		},
		&pending.Reconciler{
			Client: mgr.GetClient(),
			Live:   mgr.GetAPIReader(),
			Pods:   pods,
			Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
		},
	}
	for _, c := range controllers {
		if err := c.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("lifecycle: setting up %T: %w", c, err)
		}
	}
	// A replica that waits for the lease is ready: it would take over at once.
	if err := base.AddHealthChecks(mgr, map[string]healthz.Checker{"policies": keeper.Ready, "gpu-pods": pods.Ready}); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	logger.Info("starting", "version", api.Version, "server", rest.Host)
	return mgr.Start(ctx)
}

// cacheByObject limits the cache, of the kinds that policies render and of rights, to what
// is Sluice's, and of events to the refusals of pods: other people's quotas, network
// policies and roles are not kept in memory, and of Notices what they are sent by.
func cacheByObject() map[client.Object]cache.ByObject {
	ours := cache.ByObject{Label: labels.SelectorFromSet(apply.ManagedLabels())}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range slices.Concat(apply.WatchedObjects(), rbac.WatchedObjects()) {
		byObject[object] = ours
	}
	event, refusals := pending.EventCacheOptions()
	byObject[event] = refusals
	byObject[&v1alpha1.Notice{}] = cache.ByObject{Transform: outbox.CacheTransform()}
	return byObject
}

// softMemoryLimit is up to how much memory the garbage collector is left in peace: what
// is known of 100 000 pods in 20 000 workloads fits in, with the rubbish of reading
// them. It is no bound: where more is needed, more is taken.
const softMemoryLimit = 220 << 20

// setMemoryLimit sets that, unless whoever starts the process set GOMEMLIMIT.
func setMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemoryLimit)
	}
}
