// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/quota/excess"
	"sluice.dev/lifecycle/quota/usage"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/queues"
	"sluice.dev/lifecycle/tenancy/rbac"
	"sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/lifecycle/timelimit/eviction"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

// services are the objects that several controllers share.
type services struct {
	cfg        *config.Config
	policyTime policytime.Clock
	// client reads from the manager's cache, live from the API server.
	client client.Client
	live   client.Reader
	events events.EventRecorder
	// plannerEvents are recorded in the name of the MIG planner.
	plannerEvents events.EventRecorder
	notices       notification.Recorder
	// mail is nil if the configuration has no mail server.
	mail *outbox.Sender

	builtIn      []engine.Source
	policies     *engine.Engine
	policyStore  *store.Store
	queueWatcher *apply.QueueWatcher
	queues       queues.Manager
	rbac         rbac.Manager
	pods         *podcache.Store
	workloads    *controller.WorkloadIndex
	usageRecords *usage.Reconciler
	stopper      *suspend.Stopper
	announcer    *eviction.Announcer
	announced    eviction.AnnouncedPods
	excess       *excess.Reconciler
}

// newServices creates the services and adds those that run by themselves to the manager.
func newServices(
	ctx context.Context, mgr ctrl.Manager, cfg *config.Config, policyTime policytime.Clock, logger logr.Logger,
) (*services, error) {
	s := &services{
		cfg: cfg, policyTime: policyTime, client: mgr.GetClient(), live: mgr.GetAPIReader(), builtIn: policies.BuiltIn(),
		events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle), plannerEvents: mgr.GetEventRecorder(v1alpha1.FieldManagerPlanner),
	}
	if err := inventory.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("index projects: %w", err)
	}
	var err error
	if s.policies, err = engine.New(engine.Options{Libraries: policies.Libraries()}); err != nil {
		return nil, fmt.Errorf("create policy engine: %w", err)
	}
	policyCompiler, err := check.NewProcess(check.DefaultLimits)
	if err != nil {
		return nil, err
	}
	s.policyStore = &store.Store{Engine: s.policies, BuiltIn: s.builtIn, Compiler: policyCompiler, Logger: logger.WithName("policies")}
	if err := s.policyStore.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("set up policy store: %w", err)
	}
	s.queueWatcher, err = apply.NewQueueWatcher(mgr.GetConfig(), mgr.GetHTTPClient(), apply.QueueWatcherOptions{
		Kinds: apply.QueueKinds(), Logger: logger.WithName("engines"),
	})
	if err != nil {
		return nil, fmt.Errorf("create queue watcher: %w", err)
	}
	if err := mgr.Add(s.queueWatcher); err != nil {
		return nil, fmt.Errorf("add queue watcher: %w", err)
	}
	s.pods, err = podcache.New(mgr.GetConfig(), podcache.Settings{DeviceClasses: cfg.DeviceClasses, Logger: logger.WithName("podcache")})
	if err != nil {
		return nil, fmt.Errorf("create pod cache: %w", err)
	}
	if err := mgr.Add(s.pods); err != nil {
		return nil, fmt.Errorf("add pod cache: %w", err)
	}
	s.stopper = &suspend.Stopper{Client: s.client, DeleteUnknownKinds: cfg.Stopping.DeleteUnknownKinds}
	s.workloads = controller.NewWorkloadIndex(s.pods, owner.NewResolver(s.live, mgr.GetRESTMapper(), s.stopper.CanStop), policyTime)
	s.usageRecords = &usage.Reconciler{Client: s.client, Live: s.live, ClockResolver: s.workloads, Clock: policyTime}
	s.notices = notification.Recorder{Client: s.client, Live: s.live}
	s.rbac = rbac.Manager{Client: s.client, Live: s.live}
	s.queues = queues.Manager{
		Client: s.client, Live: s.live, Policies: s.policies, PolicyChanges: s.policyStore, Queues: s.queueWatcher, Cache: &apply.Cache{},
	}
	if cfg.Mail != nil {
		s.notices.UserAddresses = notification.UserAddressTemplate(cfg.Mail.UserAddress)
		s.mail, err = outbox.NewSender(cfg.Mail, outbox.Dependencies{Client: s.client, Live: s.live, Clock: policyTime, Events: s.events})
		if err != nil {
			return nil, fmt.Errorf("create mail sender: %w", err)
		}
	}
	s.announced = podcache.NewProjection(s.pods, eviction.Parse)
	s.announcer = &eviction.Announcer{
		Client: s.client, Live: s.live, Pods: s.pods, Clocks: s.workloads, Notices: s.notices, Events: s.events, Clock: policyTime,
		Periods: eviction.Periods{Notice: cfg.Eviction.NoticePeriod.Duration, Budget: cfg.Eviction.BudgetPeriod.Duration},
	}
	s.excess = &excess.Reconciler{
		Client: s.client, Live: s.live, Events: s.events, Evictor: s.stopper, Announcer: s.announcer, Announced: s.announced,
	}
	return s, nil
}

// isMailPaused reports whether no mail can be sent: mail is paused, or the configuration has no mail server.
func (s *services) isMailPaused(ctx context.Context) (bool, error) {
	if s.mail == nil {
		return true, nil
	}
	state, err := outbox.ReadMailState(ctx, s.live)
	return state.Paused, err
}
