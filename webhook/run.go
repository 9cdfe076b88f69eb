// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's admission requests.
//
// Enters: AdmissionReviews over HTTPS. Leaves: for Projects and Departments an
// answer that names every wrong field; for pods of governed namespaces, and for
// what makes them, admission; for Extensions who asked and who decided, and whether
// they may; and for each request one structured log line and a measurement.
// [Run] is the composition root; each folder below is one kind of object or one
// side of the work.
//
// It never writes to the cluster, but for the certificate authority in its own
// two webhook configurations, and never waits for another component.
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
	"sluice.dev/policies/store"
	"sluice.dev/webhook/cabundle"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
	"sluice.dev/webhook/podgroup"
	"sluice.dev/webhook/validation/access"
	"sluice.dev/webhook/validation/department"
	"sluice.dev/webhook/validation/extension"
	"sluice.dev/webhook/validation/project"
	"sluice.dev/webhook/validation/restart"
	"sluice.dev/webhook/workload"
)

// The paths at which the API server asks; manifests/base/webhook names them too.
const (
	PathMutatePods      = "/mutate/pods"
	PathValidatePods    = "/validate/pods"
	PathWorkloads       = "/mutate/workloads"
	PathQueuedWorkloads = "/mutate/queued-workloads"
	PathTemplates       = "/validate/templates"
	PathRestarts        = "/validate/restarts"
	PathProjects        = "/validate/projects"
	PathDepartments     = "/validate/departments"
	PathPodGroups       = "/mutate/podgroups"

	PathMutateExtensions   = "/mutate/extensions"
	PathValidateExtensions = "/validate/extensions"
)

// Run serves the webhook until ctx ends. It returns nil when it stopped because
// of that, and an error that says what to do when it cannot start.
func Run(ctx context.Context, cfg *Config, logger logr.Logger) error {
	restConfig, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, restConfig, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	rules, err := newPolicyStore(ctx, mgr, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := registerHandlers(mgr, cfg, rules.Engine, logger); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := setupReadiness(ctx, mgr, cfg, restConfig, rules, logger); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	logger.Info("starting", "version", api.Version, "server", restConfig.Host, "listen", cfg.Listen)
	return mgr.Start(ctx)
}

func newManager(cfg *Config, restConfig *rest.Config, logger logr.Logger) (ctrl.Manager, error) {
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

// newPolicyStore is the engine with the policies in force, and what keeps them in step
// with the cluster.
func newPolicyStore(ctx context.Context, mgr ctrl.Manager, logger logr.Logger) (*store.Store, error) {
	if err := evaluation.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if err := restart.IndexStoppedClocks(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries(), Observe: evaluation.ObservePolicy})
	if err != nil {
		return nil, err
	}
	keeper := &store.Store{Engine: rules, BuiltIn: policies.BuiltIn(), Logger: logger.WithName("policies")}
	return keeper, keeper.SetupWithManager(ctx, mgr)
}

func registerHandlers(mgr ctrl.Manager, cfg *Config, rules *engine.Engine, logger logr.Logger) error {
	policyTime, err := cfg.Clock(logger)
	if err != nil {
		return err
	}
	tenants := &evaluation.TenantResolver{Cache: mgr.GetClient()}
	judges := &evaluation.Evaluator{Engine: rules, Clock: policyTime, WorkerSlots: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
	desk := pod.Base{Evaluator: judges, Tenants: tenants}
	handlers := map[string]admission.Handler{
		PathMutatePods:      evaluation.NewRecorder("pods", logger, &pod.Mutator{Base: desk}),
		PathValidatePods:    evaluation.NewRecorder("final-pods", logger, &pod.Validator{Base: desk}),
		PathWorkloads:       evaluation.NewRecorder("workloads", logger, &workload.Mutator{Evaluator: judges, Tenants: tenants}),
		PathQueuedWorkloads: evaluation.NewRecorder("queued-workloads", logger, &workload.Mutator{Evaluator: judges, Tenants: tenants, FailClosed: true}),
		PathPodGroups:       evaluation.NewRecorder("podgroups", logger, &podgroup.Mutator{Tenants: tenants}),
		PathTemplates:       evaluation.NewRecorder("templates", logger, &workload.Validator{Evaluator: judges, Tenants: tenants}),
		PathRestarts:        evaluation.NewRecorder("restarts", logger, &restart.Validator{Clocks: mgr.GetClient(), Tenants: tenants, Clock: policyTime}),
	}
	administrators := access.Reviewer{Client: mgr.GetClient()}
	giving := &department.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: policyTime, Authorizer: administrators}
	working := &project.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Authorizer: administrators}
	asking := &extension.Validator{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Authorizer: administrators}
	handlers[PathDepartments] = evaluation.NewRecorder("departments", logger, giving.Handler(mgr.GetScheme()))
	handlers[PathProjects] = evaluation.NewRecorder("projects", logger, working.Handler(mgr.GetScheme()))
	handlers[PathMutateExtensions] = evaluation.NewRecorder("extensions", logger, (&extension.Defaulter{Clock: policyTime}).Handler(mgr.GetScheme()))
	handlers[PathValidateExtensions] = evaluation.NewRecorder("final-extensions", logger, asking.Handler(mgr.GetScheme()))
	for path, handler := range handlers {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: handler})
	}
	return nil
}

// setupReadiness keeps the API server's trust, and says ready only when an admission
// would be answered: certificates loaded, caches filled, registration done.
func setupReadiness(ctx context.Context, mgr ctrl.Manager, cfg *Config, restConfig *rest.Config, rules *store.Store, logger logr.Logger) error {
	direct, err := client.New(restConfig, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	keeper := &cabundle.Injector{
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
	return base.AddHealthChecks(mgr, map[string]healthz.Checker{
		"listening":  mgr.GetWebhookServer().StartedChecker(),
		"registered": keeper.Ready,
		"policies":   rules.Ready,
	})
}
