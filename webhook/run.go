// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's admission requests.
//
// [Run] is the composition root: it builds the policy engine, the handlers and the server. Each subfolder handles one
// kind of object or has one step of the work. The API server sends AdmissionReviews over HTTPS. The webhook validates
// Projects, Departments and Extensions, applies the policies to pods and workloads of governed namespaces, and denies
// the restart of stopped workloads. Each request causes one record and one measurement.
//
// The webhook never writes to the cluster, except for a Lease with its report, and never waits for another component but the
// one that creates its certificate ([RenewCertificates]).
package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	server "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/policies/store"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
	"sluice.dev/webhook/podgroup"
	"sluice.dev/webhook/validation"
	"sluice.dev/webhook/validation/department"
	"sluice.dev/webhook/validation/extension"
	"sluice.dev/webhook/validation/policy"
	"sluice.dev/webhook/validation/project"
	"sluice.dev/webhook/validation/restart"
	"sluice.dev/webhook/workload"
)

// The paths of the webhooks. manifests/base/webhook has the same paths.
const (
	PathForgedDecisions = "/mutate/forged-decisions"
	PathMutatePods      = "/mutate/pods"
	PathValidatePods    = "/validate/pods"
	PathWorkloads       = "/mutate/workloads"
	PathQueuedWorkloads = "/mutate/queued-workloads"
	PathTemplates       = "/validate/templates"
	PathAdoptions       = "/validate/adoptions"
	PathObjects         = "/mutate/objects"
	PathClaims          = "/mutate/claims"
	PathClaimRetention  = "/validate/claim-retention"
	PathCreatorLabels   = "/mutate/creator-labels"
	PathAffinity        = "/mutate/affinity"
	PathPodCreators     = "/validate/pod-creators"
	PathConnections     = "/validate/connections"
	PathRestarts        = "/validate/restarts"
	PathHosts           = "/validate/hosts"
	PathProjects        = "/validate/projects"
	PathDepartments     = "/validate/departments"
	PathPolicies        = "/validate/policies"
	PathPodGroups       = "/mutate/podgroups"

	PathExceptionAuthors   = "/mutate/exception-authors"
	PathMutateExtensions   = "/mutate/extensions"
	PathValidateExtensions = "/validate/extensions"
)

// Run serves the webhook until ctx ends and the drain period is over, and then returns nil. It waits for the API server and the
// CRDs. It returns an error if the webhook cannot start.
func Run(ctx context.Context, cfg *Config, logger logr.Logger) error {
	limitGarbageCollection()
	restConfig, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	if err := cfg.WaitForKinds(ctx, restConfig, logger, api.Kinds()...); err != nil || ctx.Err() != nil {
		return err
	}
	served := &servingCertificate{directory: cfg.Certificates.Directory, logger: logger.WithName("certificates")}
	mgr, err := newManager(cfg, restConfig, served, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	draining := &drain{period: cfg.DrainPeriod.Duration, logger: logger}
	ctx = draining.serving(ctx)
	policyChecker, err := check.NewProcess(check.DefaultLimits)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	counter := &replica.Counter{}
	policyStore, err := newPolicyStore(ctx, mgr, cfg, policyChecker, counter, logger)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	reporter := &replicaReporter{
		client: mgr.GetClient(), engine: policyStore.Engine, counter: counter, logger: logger.WithName("replica"),
	}
	decisions, err := newDecisionLog(&cfg.Decisions, os.Stdout, logger)
	if err != nil {
		return fmt.Errorf("webhook: decisions: %w", err)
	}
	defer decisions.Close() // after the server, which adds to it
	if err := registerHandlers(ctx, mgr, cfg, reporter, policyChecker, draining, decisions, logger); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	for _, runnable := range []manager.Runnable{served, reporter} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
	}
	if err := setupReadiness(ctx, mgr, map[string]healthz.Checker{
		"certificates": served.ready,
		"draining":     draining.Ready,
		"listening":    mgr.GetWebhookServer().StartedChecker(),
		"policies":     policyStore.Ready,
	}); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	logger.Info("Starting webhook", "version", config.Version, "server", restConfig.Host, "listen", cfg.Listen)
	return mgr.Start(ctx)
}

func newManager(cfg *Config, restConfig *rest.Config, served *servingCertificate, logger logr.Logger) (ctrl.Manager, error) {
	options, err := api.ManagerOptions(&cfg.Common, logger)
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
	serverOptions := server.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate = served.get },
	}}
	if cfg.ClientCA != "" {
		required, err := requireClientCA(cfg.ClientCA, cfg.ClientNames)
		if err != nil {
			return nil, err
		}
		serverOptions.TLSOpts = append(serverOptions.TLSOpts, required)
	}
	options.WebhookServer = server.NewServer(serverOptions)
	revision, ofPolicies := store.RevisionCacheOptions()
	configMap, ofData := store.DataCacheOptions()
	options.Cache.ByObject = map[client.Object]cache.ByObject{revision: ofPolicies, configMap: ofData}
	return ctrl.NewManager(restConfig, options)
}

// newPolicyStore returns the policy engine with the store that updates it from the cluster.
func newPolicyStore(ctx context.Context, mgr ctrl.Manager, cfg *Config, compiler store.Compiler, counter *replica.Counter, logger logr.Logger) (*store.Store, error) {
	policyEngine, err := engine.New(engine.Options{
		Libraries: policies.Libraries(),
		Limits:    engine.Limits{Evaluation: cfg.PolicyTimeout.Duration, Request: cfg.RequestTimeout.Duration},
		Observe:   func(e engine.Evaluation) { evaluation.ObservePolicy(e, counter) },
	})
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("create client of policy data: %w", err)
	}
	policyStore := &store.Store{
		Engine: policyEngine, BuiltIn: policies.BuiltIn(), Compiler: compiler, Logger: logger.WithName("policies"),
		Objects: &data.Watcher{Client: objects, Mapper: mgr.GetRESTMapper(), Logger: logger.WithName("policy-data")},
	}
	return policyStore, policyStore.SetupWithManager(ctx, mgr)
}

// minSlots and maxSlots bound the evaluations at a time, of which there are else as many as processors: with a single one, each
// project would wait for every other, and each one more takes memory.
const minSlots, maxSlots = 2, 4

func registerHandlers(
	ctx context.Context, mgr ctrl.Manager, cfg *Config, reporter *replicaReporter, policyChecker policy.Checker, draining *drain,
	decisions *decisionlog.Log, logger logr.Logger,
) error {
	if err := evaluation.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := evaluation.IndexClockControllers(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := restart.IndexStoppedClocks(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clock, err := cfg.Clock(logger)
	if err != nil {
		return err
	}
	cached, live, scheme := mgr.GetClient(), mgr.GetAPIReader(), mgr.GetScheme()
	slots := evaluation.NewSlots(min(max(runtime.GOMAXPROCS(0), minSlots), maxSlots))
	dryRuns := evaluation.NewDryRunQueue(slots, logger)
	if err := mgr.Add(dryRuns); err != nil {
		return err
	}
	tenants := &evaluation.TenantResolver{Cache: cached, Clock: clock}
	base := evaluation.Base{
		Evaluator: &evaluation.Evaluator{
			Engine: reporter.engine, Clock: clock, Slots: slots, Timeout: cfg.RequestTimeout.Duration, DryRun: dryRuns,
			Counter: reporter.counter,
		},
		Tenants: tenants,
	}
	authorizer := validation.Reviewer{Client: cached}
	departmentValidator := &department.Validator{Cached: cached, Live: live, Clock: clock, Authorizer: authorizer}
	projectValidator := &project.Validator{Cached: cached, Live: live, Authorizer: authorizer}
	extensionValidator := &extension.Validator{Cached: cached, Live: live, Authorizer: authorizer, Clock: clock}
	extensionDefaulter := &extension.Defaulter{Clock: clock}
	creators := &workload.CreatorResolver{Live: live, Controllers: tenants}
	claims := &workload.ClaimReader{Creators: creators}
	var limits requestLimits
	policyValidator := &policy.Validator{Cached: cached, Checker: policyChecker, Clock: clock, Policies: reporter.engine}
	for _, webhook := range []struct {
		path, name string
		handler    admission.Handler
	}{
		{PathForgedDecisions, "forged-decisions", pod.DecisionsRemover{}},
		{PathMutatePods, "pods", &pod.Mutator{Base: base}},
		{PathValidatePods, "final-pods", &pod.Validator{Base: base}},
		{PathWorkloads, "workloads", &workload.Mutator{Base: base}},
		{PathQueuedWorkloads, "queued-workloads", &workload.Mutator{Base: base, FailClosed: true}},
		{PathTemplates, "templates", &workload.Validator{Base: base, Claims: claims}},
		{PathAdoptions, "adoptions", &workload.AdoptionValidator{Cache: cached, Creators: creators}},
		{PathClaims, "claims", &workload.ClaimMutator{Claims: claims, Rights: authorizer, Scans: evaluation.NewSlots(2)}},
		{PathClaimRetention, "claim-retention", &workload.ClaimRetentionValidator{Claims: claims}},
		{PathCreatorLabels, "creator-labels", workload.CreatorLabeler{}},
		{PathAffinity, "affinity", &workload.AffinityNarrower{Creators: creators}},
		{PathPodCreators, "pod-creators", &workload.PodCreatorValidator{Claims: claims}},
		{PathConnections, "connections", &workload.ConnectionValidator{Creators: creators}},
		{PathHosts, "hosts", &workload.HostValidator{Cache: mgr.GetCache(), Mapper: mgr.GetRESTMapper()}},
		{PathPodGroups, "podgroups", &podgroup.Mutator{Tenants: tenants}},
		{PathRestarts, "restarts", &restart.Validator{Clocks: cached, Tenants: tenants, Clock: clock}},
		{PathDepartments, "departments", departmentValidator.Handler(scheme)},
		{PathExceptionAuthors, "exception-authors", project.ExceptionAuthors{}},
		{PathProjects, "projects", projectValidator.Handler(scheme)},
		{PathPolicies, "policies", policyValidator.Handler(scheme)},
		{PathMutateExtensions, "extensions", extensionDefaulter.Handler(scheme)},
		{PathValidateExtensions, "final-extensions", extensionValidator.Handler(scheme)},
	} {
		handler := evaluation.NewRecorder(webhook.name, decisions, webhook.handler)
		mgr.GetWebhookServer().Register(webhook.path, draining.wrap(limits.wrap(&admission.Webhook{Handler: handler})))
	}
	// The decision log gets no Secrets.
	objects := evaluation.NewRecorder("objects", nil, &workload.Mutator{Base: base})
	mgr.GetWebhookServer().Register(PathObjects, draining.wrap(limits.wrap(&admission.Webhook{Handler: objects})))
	return nil
}

// setupReadiness adds the health checks. The webhook is ready once it has a certificate, filled caches and the
// policies.
func setupReadiness(ctx context.Context, mgr ctrl.Manager, checks map[string]healthz.Checker) error {
	// The informers start now, so that the first admission request does not wait for them.
	ingress := &unstructured.Unstructured{}
	ingress.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("Ingress"))
	for _, object := range []client.Object{
		&v1alpha1.Project{}, &v1alpha1.Department{}, &v1alpha1.NodePool{}, &v1alpha1.WorkloadClock{}, &v1alpha1.AdmissionParameters{},
		&corev1.Namespace{}, ingress,
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return api.AddHealthChecks(mgr, checks)
}
