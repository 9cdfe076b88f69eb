// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle runs the controllers of Sluice in one process.
//
// They watch Projects, Departments, NodePools, Policies, GPUNodes and GPU pods. They write
// the namespace, rights and quotas of each project, the queues of the schedulers, the
// clocks and stops of workloads, notices and mail, and the MIG layout of each node.
// Lifecycle chooses no node for a pod, keeps no queue of its own, and deletes no
// namespace that it did not create or that holds a PersistentVolumeClaim.
//
// [Run] is the composition root: manager, services, controllers, start.
package lifecycle

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/quota/excess"
	"sluice.dev/lifecycle/quota/pending"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/tenancy/rbac"
	"sluice.dev/policies/replica"
	"sluice.dev/policies/store"
)

// leaderElectionID is the name of the Lease.
const leaderElectionID = "sluice-lifecycle"

// Run runs the lifecycle controllers until ctx ends, and then returns nil. It waits for the API server and the CRDs. It returns an
// error if they cannot start, or if the process loses its leadership. The admission policies
// are read from manifests.
func Run(ctx context.Context, cfg *config.Config, manifests fs.FS, logger logr.Logger) error {
	policyTime, err := cfg.Clock(logger)
	if err != nil {
		return err
	}
	connection, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	if err := cfg.WaitForKinds(ctx, connection, logger, api.Kinds()...); err != nil || ctx.Err() != nil {
		return err
	}
	mgr, err := newManager(cfg, connection, logger)
	if err != nil {
		return err
	}
	s, err := newServices(ctx, mgr, cfg, policyTime, logger)
	if err != nil {
		return err
	}
	for _, c := range slices.Concat(s.tenancy(), s.rendering(manifests), s.quota(), s.timeLimit(), s.notification(), s.eviction(), s.migPlan(), s.audit()) {
		if err := c.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", c, err)
		}
	}
	if err := registerStateMetrics(mgr, policyTime); err != nil {
		return err
	}
	// A standby replica is ready too: it can become the leader at any time.
	if err := api.AddHealthChecks(mgr, map[string]healthz.Checker{"policies": s.policyStore.Ready, "gpu-pods": s.pods.Ready}); err != nil {
		return err
	}
	logger.Info("Starting lifecycle", "version", base.Version, "server", mgr.GetConfig().Host)
	return mgr.Start(ctx)
}

// newManager returns the manager with its caches and leader election.
func newManager(cfg *config.Config, connection *rest.Config, logger logr.Logger) (ctrl.Manager, error) {
	options, err := api.ManagerOptions(&cfg.Common, logger)
	if err != nil {
		return nil, err
	}
	options.LeaderElection = !cfg.LeaderElection.Disabled
	options.LeaderElectionID = leaderElectionID
	options.LeaderElectionNamespace = cfg.LeaderElection.Namespace
	options.LeaderElectionReleaseOnCancel = true
	options.MapperProvider = newMapper
	options.Cache.ByObject = cacheByObject()
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	setMemoryLimit()
	mgr, err := ctrl.NewManager(connection, options)
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	return mgr, nil
}

// cacheByObject limits the manager's cache. Of rendered kinds and rights it keeps Sluice's own
// objects, and in addition all ResourceQuotas, since a project reports those that are not Sluice's. Of
// events it keeps the rejections of pods, of revisions those of policies, of Leases the reports of the
// webhook's replicas, and of Notices the fields that delivery needs. Departments, Projects and NodePools
// have in addition when they were last written.
func cacheByObject() map[client.Object]cache.ByObject {
	ours := cache.ByObject{Label: labels.SelectorFromSet(apply.ManagedLabels())}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range slices.Concat(apply.WatchedObjects(), rbac.WatchedObjects()) {
		if _, quota := object.(*corev1.ResourceQuota); !quota {
			byObject[object] = ours
		}
	}
	event, rejections := pending.EventCacheOptions()
	byObject[event] = rejections
	revision, ofPolicies := store.RevisionCacheOptions()
	byObject[revision] = ofPolicies
	configMap, ofData := store.DataCacheOptions()
	byObject[configMap] = ofData
	lease, reports := replica.CacheOptions()
	byObject[lease] = reports
	byObject[&v1alpha1.Notice{}] = cache.ByObject{Transform: outbox.CacheTransform()}
	for _, object := range []client.Object{&v1alpha1.Department{}, &v1alpha1.Project{}, &v1alpha1.NodePool{}} {
		byObject[object] = cache.ByObject{Transform: excess.CacheTransform()}
	}
	return byObject
}

// softMemoryLimit holds 100 000 pods in 20 000 workloads, which take 170 MiB, and the garbage of reading them. With
// the pages of the program itself, about 54 MiB, the process has less than 300 MiB at rest.
// The garbage collector runs more often above it; it is no hard limit.
const softMemoryLimit = 220 << 20

// setMemoryLimit sets softMemoryLimit unless the environment sets GOMEMLIMIT.
func setMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemoryLimit)
	}
}
