// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

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
	"sluice.dev/lifecycle/currency"
	"sluice.dev/lifecycle/department"
	"sluice.dev/lifecycle/doors"
	"sluice.dev/lifecycle/gpunodes"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/members"
	"sluice.dev/lifecycle/nextpool"
	"sluice.dev/lifecycle/nodepool"
	"sluice.dev/lifecycle/notices/outbox"
	"sluice.dev/lifecycle/planner"
	"sluice.dev/lifecycle/policy"
	"sluice.dev/lifecycle/project"
	"sluice.dev/lifecycle/queues"
	"sluice.dev/lifecycle/render"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/lifecycle/waiting"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
)

// leaderElectionID is the name of the Lease.
const leaderElectionID = "sluice-lifecycle"

// Run runs the lifecycle controller until ctx ends. It returns nil when it
// stopped because of that, and an error that says what to do when it cannot
// start or loses its leadership.
func Run(ctx context.Context, cfg *config.Config, logger logr.Logger) error {
	rest, err := cfg.Rest()
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
	options.Cache.ByObject = cached()
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	boundMemory()
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
	keeper := &live.Keeper{Engine: inForce, BuiltIn: builtIn, Logger: logger.WithName("policies")}
	if err := keeper.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	engines, err := queuekinds.New(mgr.GetConfig(), mgr.GetHTTPClient(), queuekinds.Settings{
		Kinds: render.QueueKinds(), Logger: logger.WithName("engines"),
	})
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	if err := mgr.Add(engines); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	rendered := queues.Keeper{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Policies: inForce,
		Changes:  keeper,
		Queues:   engines,
		Memory:   &render.Memory{},
	}
	rights := members.Keeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	pods, err := addClocks(mgr, cfg, policyTime, logger)
	if err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	if err := addMail(mgr, cfg, policyTime); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	controllers := []interface{ SetupWithManager(ctrl.Manager) error }{
		&nodepool.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Policies: inForce, Changes: keeper},
		&currency.Reconciler{Client: mgr.GetClient()},
		&gpunodes.Reconciler{Client: mgr.GetClient()},
		&planner.Reconciler{
			Client: mgr.GetClient(),
			Live:   mgr.GetAPIReader(),
			Events: mgr.GetEventRecorder(v1alpha1.FieldManagerPlanner),
		},
		&department.Reconciler{Client: mgr.GetClient()},
		&doors.Reconciler{Client: mgr.GetClient(), Settings: doors.Settings{
			Identities:         doors.Identities(cfg.Identities),
			DeviceClasses:      cfg.DeviceClasses,
			DenyGPUPodsOutside: cfg.GPUPodsOutside == config.Deny,
		}},
		&policy.Reconciler{Client: mgr.GetClient(), BuiltIn: builtIn, Reports: keeper},
		&project.Reconciler{
			Client:   mgr.GetClient(),
			Live:     mgr.GetAPIReader(),
			Policies: inForce,
			Changes:  keeper,
			Queues:   engines,
			Events:   mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
			Clock:    policyTime,
			Rights:   &rights,
		},
		&queues.Departments{Keeper: rendered},
		&queues.NodePools{Keeper: rendered},
		&members.ProjectReconciler{Keeper: rights},
		&members.DepartmentReconciler{Keeper: rights},
		&nextpool.Reconciler{
			Client: mgr.GetClient(),
			Live:   mgr.GetAPIReader(),
			Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
		},
		&waiting.Reconciler{
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
	if err := base.AddHealth(mgr, map[string]healthz.Checker{"policies": keeper.Ready, "gpu-pods": pods.Ready}); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	logger.Info("starting", "version", api.Version, "server", rest.Host)
	return mgr.Start(ctx)
}

// cached limits the cache, of the kinds that policies render and of rights, to what
// is Sluice's, and of events to the refusals of pods: other people's quotas, network
// policies and roles are not kept in memory, and of Notices what they are sent by.
func cached() map[client.Object]cache.ByObject {
	ours := cache.ByObject{Label: labels.SelectorFromSet(render.Ours())}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range render.Objects() {
		byObject[object] = ours
	}
	for _, object := range members.Objects() {
		byObject[object] = cache.ByObject{Label: labels.SelectorFromSet(members.Ours())}
	}
	event, refusals := waiting.Cached()
	byObject[event] = refusals
	byObject[&v1alpha1.Notice{}] = cache.ByObject{Transform: outbox.Trim()}
	return byObject
}
