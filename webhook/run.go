// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	server "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
	"sluice.dev/webhook/access"
	"sluice.dev/webhook/config"
	"sluice.dev/webhook/decision"
	"sluice.dev/webhook/departments"
	"sluice.dev/webhook/extensions"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/podgroups"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/projects"
	"sluice.dev/webhook/registration"
	"sluice.dev/webhook/restarts"
	"sluice.dev/webhook/templates"
	"sluice.dev/webhook/tenant"
	"sluice.dev/webhook/workloads"
)

// The paths at which the API server asks; manifests/base/webhook names them too.
const (
	PathMutatePods   = "/mutate/pods"
	PathValidatePods = "/validate/pods"
	PathWorkloads    = "/mutate/workloads"
	PathQueued       = "/mutate/queued-workloads"
	PathTemplates    = "/validate/templates"
	PathRestarts     = "/validate/restarts"
	PathProjects     = "/validate/projects"
	PathDepartments  = "/validate/departments"
	PathPodGroups    = "/mutate/podgroups"

	PathMutateExtensions   = "/mutate/extensions"
	PathValidateExtensions = "/validate/extensions"
)

// Run serves the webhook until ctx ends. It returns nil when it stopped because
// of that, and an error that says what to do when it cannot start.
func Run(ctx context.Context, cfg *config.Config, logger logr.Logger) error {
	restConfig, err := cfg.Rest()
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, restConfig, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	rules, err := rulesOf(ctx, mgr, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := serve(mgr, cfg, rules.Engine, logger); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := register(ctx, mgr, cfg, restConfig, rules, logger); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	logger.Info("starting", "version", api.Version, "server", restConfig.Host, "listen", cfg.Listen)
	return mgr.Start(ctx)
}

func newManager(cfg *config.Config, restConfig *rest.Config, logger logr.Logger) (ctrl.Manager, error) {
	options, err := cfg.ManagerOptions(logger)
	if err != nil {
		return nil, err
	}
	host, portText, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	options.WebhookServer = server.NewServer(server.Options{Host: host, Port: port, CertDir: cfg.Certificates})
	return ctrl.NewManager(restConfig, options)
}

// rulesOf is the engine with the policies in force, and what keeps them in step
// with the cluster.
func rulesOf(ctx context.Context, mgr ctrl.Manager, logger logr.Logger) (*live.Keeper, error) {
	if err := tenant.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if err := restarts.IndexClocks(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries(), Observe: decision.Policy})
	if err != nil {
		return nil, err
	}
	keeper := &live.Keeper{Engine: rules, BuiltIn: policies.BuiltIn(), Logger: logger.WithName("policies")}
	return keeper, keeper.SetupWithManager(ctx, mgr)
}

func serve(mgr ctrl.Manager, cfg *config.Config, rules *engine.Engine, logger logr.Logger) error {
	policyTime, err := cfg.Clock(logger)
	if err != nil {
		return err
	}
	tenants := &tenant.Directory{Cache: mgr.GetClient()}
	judges := &judge.Judge{Engine: rules, Clock: policyTime, Turns: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
	desk := pods.Desk{Judge: judges, Tenants: tenants}
	handlers := map[string]admission.Handler{
		PathMutatePods:   decision.Recorded("pods", logger, &pods.Mutator{Desk: desk}),
		PathValidatePods: decision.Recorded("final-pods", logger, &pods.Validator{Desk: desk}),
		PathWorkloads:    decision.Recorded("workloads", logger, &workloads.Handler{Judge: judges, Tenants: tenants}),
		PathQueued:       decision.Recorded("queued-workloads", logger, &workloads.Handler{Judge: judges, Tenants: tenants, Must: true}),
		PathPodGroups:    decision.Recorded("podgroups", logger, &podgroups.Handler{Tenants: tenants}),
		PathTemplates:    decision.Recorded("templates", logger, &templates.Handler{Judge: judges, Tenants: tenants}),
		PathRestarts:     decision.Recorded("restarts", logger, &restarts.Handler{Clocks: mgr.GetClient(), Tenants: tenants, Clock: policyTime}),
	}
	administrators := access.Reviewer{Client: mgr.GetClient()}
	giving := &departments.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: policyTime, Administrators: administrators}
	working := &projects.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Writers: administrators}
	asking := &extensions.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Administrators: administrators}
	handlers[PathDepartments] = decision.Recorded("departments", logger, giving.Handler(mgr.GetScheme()))
	handlers[PathProjects] = decision.Recorded("projects", logger, working.Handler(mgr.GetScheme()))
	handlers[PathMutateExtensions] = decision.Recorded("extensions", logger, (&extensions.Stamper{Clock: policyTime}).Handler(mgr.GetScheme()))
	handlers[PathValidateExtensions] = decision.Recorded("final-extensions", logger, asking.Handler(mgr.GetScheme()))
	for path, handler := range handlers {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: handler})
	}
	return nil
}

// register keeps the API server's trust, and says ready only when an admission
// would be answered: certificates loaded, caches filled, registration done.
func register(ctx context.Context, mgr ctrl.Manager, cfg *config.Config, restConfig *rest.Config, rules *live.Keeper, logger logr.Logger) error {
	direct, err := client.New(restConfig, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	keeper := &registration.Keeper{
		Client:     direct,
		Logger:     logger.WithName("registration"),
		CAFile:     filepath.Join(cfg.Certificates, "ca.crt"),
		Validating: cfg.Registration.Validating,
		Mutating:   cfg.Registration.Mutating,
	}
	if err := mgr.Add(keeper); err != nil {
		return err
	}
	// Asked for now, so that the first admission does not wait for them.
	for _, object := range []client.Object{&v1alpha1.Project{}, &v1alpha1.Department{}, &v1alpha1.NodePool{}, &v1alpha1.WorkloadClock{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return base.AddHealth(mgr, map[string]healthz.Checker{
		"listening":  mgr.GetWebhookServer().StartedChecker(),
		"registered": keeper.Ready,
		"policies":   rules.Ready,
	})
}
