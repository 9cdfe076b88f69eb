// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
)

// TenantResolver resolves and caches tenants. It is ready to use once Cache is set, and safe for concurrent use.
type TenantResolver struct {
	// Cache has the Namespaces, Projects, Departments, NodePools, WorkloadClocks and AdmissionParameters, with the indexes
	// [ProjectNamespaceIndex] and [ClockControllerIndex].
	Cache client.Reader
	// Clock is policy time, for the end of a pause. Without a clock nothing pauses.
	Clock policytime.Clock

	mu      sync.RWMutex
	tenants map[string]resolvedTenant
}

// resolvedTenant is a tenant with the versions of the objects from which it was made.
type resolvedTenant struct {
	tenant  *decision.Tenant
	sources string
}

// Resolve returns the tenant of the namespace, which the caller must not modify; nil if no project owns it.
func (r *TenantResolver) Resolve(ctx context.Context, namespace string) (*decision.Tenant, error) {
	var from decision.TenantSources
	var err error
	if from.Project, from.Department, err = GetProject(ctx, r.Cache, namespace); from.Project == nil || err != nil {
		return nil, err
	}
	var pools v1alpha1.NodePoolList
	if err := r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list node pools: %w", err)
	}
	from.NodePools = pools.Items
	if err := r.addParameters(ctx, &from); err != nil {
		return nil, err
	}
	if from.Namespace, err = getNamespace(ctx, r.Cache, namespace); err != nil {
		return nil, err
	}
	sources := versionsOf(&from)
	r.mu.RLock()
	resolved, ok := r.tenants[namespace]
	r.mu.RUnlock()
	if ok && resolved.sources == sources {
		return resolved.tenant, nil
	}
	tenant, err := decision.NewTenant(from)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants == nil {
		r.tenants = make(map[string]resolvedTenant)
	}
	r.tenants[namespace] = resolvedTenant{tenant, sources}
	return tenant, nil
}

// getNamespace returns a namespace. The cache can be older than the request: then the namespace has no labels and annotations yet.
func getNamespace(ctx context.Context, cache client.Reader, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	if err := cache.Get(ctx, types.NamespacedName{Name: name}, namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	}
	namespace.Name = name
	return namespace, nil
}

// GetProject returns the project that owns the namespace, by the project's status, and the project's department.
// Both are nil if no project owns it. The caller must not modify them. The cache needs the index
// [ProjectNamespaceIndex]. The namespace's label is no source: lifecycle writes it after the status.
func GetProject(ctx context.Context, cache client.Reader, namespace string) (*v1alpha1.Project, *v1alpha1.Department, error) {
	var projects v1alpha1.ProjectList
	if err := cache.List(ctx, &projects, client.MatchingFields{ProjectNamespaceIndex: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list projects with namespace %s: %w", namespace, err)
	}
	if len(projects.Items) == 0 {
		return nil, nil, nil
	}
	project, department := &projects.Items[0], &v1alpha1.Department{}
	if err := cache.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, department); err != nil {
		return nil, nil, fmt.Errorf("get department %s of project %s: %w", project.Spec.Department, project.Name, err)
	}
	return project, department, nil
}

// addParameters adds the limits that the admission policies of the API server have, the pod templates of further kinds, and the
// end of the present pause.
func (r *TenantResolver) addParameters(ctx context.Context, from *decision.TenantSources) error {
	var parameters v1alpha1.AdmissionParameters
	err := r.Cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get admission parameters: %w", err)
	}
	if pause := parameters.Status.Pause; r.Clock != nil && pause.IsInForce(r.Clock.Now()) {
		from.PausedUntil = pause.Until.Time
	}
	from.PodTemplates, from.NonGPUResources = parameters.Spec.PodTemplates, parameters.Spec.NonGPUResources
	from.SizeLimits = decision.SizeLimits{Labels: int(parameters.Spec.MaxLabels), Annotations: int(parameters.Spec.MaxAnnotations)}
	return nil
}

// versionsOf returns the versions of a tenant's sources. Of node pools that are not the project's only counts
// what pods without GPUs find there, and the names of resources.
func versionsOf(from *decision.TenantSources) string {
	versions := make([]string, len(from.NodePools))
	for i := range from.NodePools {
		pool := &from.NodePools[i]
		version := pool.ResourceVersion
		if !slices.ContainsFunc(from.Project.Spec.NodePools, func(quota v1alpha1.PoolQuota) bool { return quota.Name == pool.Name }) {
			version = fmt.Sprint(pool.Generation, pool.Status.Nodes > 0, pool.Status.Taints, pool.Status.UnlistedResources)
		}
		versions[i] = string(pool.UID) + "/" + version
	}
	slices.Sort(versions)
	return fmt.Sprint(from.Project.UID, "/", from.Project.ResourceVersion, " ", from.Department.UID, "/", from.Department.ResourceVersion, " ",
		versions, from.Namespace.UID, "/", from.Namespace.ResourceVersion, " ", from.SizeLimits,
		from.PodTemplates, from.NonGPUResources, from.PausedUntil.Unix())
}

// ProjectNamespaceIndex indexes projects by the namespace they own. A project that lost its namespace to
// another one has no entry.
const ProjectNamespaceIndex = "status.namespace.name"

// IndexProjects registers [ProjectNamespaceIndex].
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.Project{}, ProjectNamespaceIndex, func(object client.Object) []string {
		project, ok := object.(*v1alpha1.Project)
		if !ok || project.Status.Namespace == nil {
			return nil
		}
		return []string{project.Status.Namespace.Name}
	})
}
