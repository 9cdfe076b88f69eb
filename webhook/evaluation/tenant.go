// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/input"
)

// Tenant is the project that owns a namespace. It is shared and must not be modified.
type Tenant struct {
	// Project is the project's name, and Department its department's.
	Project, Department string
	// TimeZone is the department's time zone.
	TimeZone *time.Location
	// LongestExtension is the longest extension that the department grants without approval.
	LongestExtension period.Duration
	// Documents are input.project, input.department, input.nodePools and input.use.
	Documents Documents
	// NodePools are the same node pools as Go values.
	NodePools []input.NodePool
	// SizeLimits are the limits of the namespace's objects.
	SizeLimits SizeLimits
	// Schedulers are the schedulers of the node pools.
	Schedulers engine.Schedulers
	// Closed reports whether the project accepts no new GPU pods, and ClosedAt since when; zero if that is not recorded.
	Closed   bool
	ClosedAt time.Time
	// Owners are the names of the project's owners.
	Owners []string
	// PausedUntil is the end of the present pause, in policy time; zero without one.
	PausedUntil time.Time
	// Version is a digest of all the other fields but Documents.Use: it changes only if one of them does, and not with
	// each new status of the project.
	Version string

	// sources are the versions of the objects from which the tenant was made.
	sources string
	// forReplacements is the tenant of pods that replace others in an expired project; nil in other projects.
	forReplacements *Tenant
}

// Documents are the parts of the policies' input about a tenant. Use is as of the cache.
type Documents struct {
	Project, Department, NodePools, Use document.Document
}

// TenantResolver resolves and caches tenants. It is ready to use once Cache is set, and safe for concurrent use.
type TenantResolver struct {
	// Cache has the Projects, Departments, NodePools, WorkloadClocks and AdmissionParameters, with the indexes
	// [ProjectNamespaceIndex] and [ClockControllerIndex].
	Cache client.Reader
	// Clock is policy time, for the end of a pause. Without a clock nothing pauses.
	Clock policytime.Clock

	mu      sync.RWMutex
	tenants map[string]*Tenant
}

// Resolve returns the tenant of the namespace; nil if no project owns it.
func (r *TenantResolver) Resolve(ctx context.Context, namespace string) (*Tenant, error) {
	project, department, err := GetProject(ctx, r.Cache, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	pools, refused, err := r.listNodePools(ctx, project)
	if err != nil {
		return nil, err
	}
	limits, pausedUntil, err := r.getParameters(ctx)
	if err != nil {
		return nil, err
	}
	sources := sourceVersions(project, department, pools) + fmt.Sprint(" ", limits, pausedUntil.Unix(), refused)
	r.mu.RLock()
	tenant := r.tenants[namespace]
	r.mu.RUnlock()
	if tenant != nil && tenant.sources == sources {
		return tenant, nil
	}
	if tenant, err = newTenant(project, department, pools, refused, limits, pausedUntil); err != nil {
		return nil, err
	}
	tenant.sources = sources
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants == nil {
		r.tenants = make(map[string]*Tenant)
	}
	r.tenants[namespace] = tenant
	return tenant, nil
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

// listNodePools returns the project's node pools that exist, by name, and the nodes of all pools that refuse pods without
// GPUs. The caller must not modify them.
func (r *TenantResolver) listNodePools(
	ctx context.Context, project *v1alpha1.Project,
) (map[string]*v1alpha1.NodePool, []input.NodeLabel, error) {
	var all v1alpha1.NodePoolList
	if err := r.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list node pools: %w", err)
	}
	pools := make(map[string]*v1alpha1.NodePool, len(project.Spec.NodePools))
	for i := range all.Items {
		pool := &all.Items[i]
		if slices.ContainsFunc(project.Spec.NodePools, func(quota v1alpha1.PoolQuota) bool { return quota.Name == pool.Name }) {
			pools[pool.Name] = pool
		}
	}
	return pools, input.RefusedNodes(all.Items), nil
}

// getParameters returns the limits that the admission policies of the API server have, and the end of
// the present pause.
func (r *TenantResolver) getParameters(ctx context.Context) (limits SizeLimits, pausedUntil time.Time, err error) {
	var parameters v1alpha1.AdmissionParameters
	err = r.Cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if client.IgnoreNotFound(err) != nil {
		return SizeLimits{}, time.Time{}, fmt.Errorf("get admission parameters: %w", err)
	}
	if pause := parameters.Status.Pause; r.Clock != nil && pause.IsInForce(r.Clock.Now()) {
		pausedUntil = pause.Until.Time
	}
	return SizeLimits{Labels: int(parameters.Spec.MaxLabels), Annotations: int(parameters.Spec.MaxAnnotations)}, pausedUntil, nil
}

func sourceVersions(project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool) string {
	versions := make([]string, 0, len(pools))
	for _, pool := range pools {
		versions = append(versions, string(pool.UID)+"/"+pool.ResourceVersion)
	}
	slices.Sort(versions)
	return string(project.UID) + "/" + project.ResourceVersion + " " +
		string(department.UID) + "/" + department.ResourceVersion + " " + strings.Join(versions, " ")
}

func newTenant(
	project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool,
	refused []input.NodeLabel, limits SizeLimits, pausedUntil time.Time,
) (*Tenant, error) {
	tenant := &Tenant{
		Project: project.Name, Department: department.Name, LongestExtension: department.Spec.Extensions.LongestExtension(), SizeLimits: limits,
		PausedUntil: pausedUntil,
		NodePools:   input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }),
	}
	schedulers := make([]v1alpha1.Scheduler, len(tenant.NodePools))
	for i := range tenant.NodePools {
		schedulers[i] = tenant.NodePools[i].Scheduler
	}
	tenant.Schedulers = engine.SchedulersOf(schedulers...)
	departmentInput := input.NewDepartment(department)
	zone, err := time.LoadLocation(departmentInput.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("load time zone %q of department %s: %w", departmentInput.TimeZone, department.Name, err)
	}
	tenant.TimeZone = zone
	projectInput := input.NewProject(project, department, refused)
	tenant.Closed, tenant.Owners = projectInput.Closed, projectInput.Owners
	if project.Status.ClosedAt != nil {
		tenant.ClosedAt = project.Status.ClosedAt.Time
	}
	for _, part := range []struct {
		target *document.Document
		source any
	}{
		{&tenant.Documents.Project, projectInput},
		{&tenant.Documents.Department, departmentInput},
		{&tenant.Documents.NodePools, tenant.NodePools},
		{&tenant.Documents.Use, input.NewUse(project)},
	} {
		if *part.target, err = document.FromGo(part.source); err != nil {
			return nil, fmt.Errorf("encode input of project %s: %w", project.Name, err)
		}
	}
	if tenant.Version, err = tenant.digest(); err != nil {
		return nil, fmt.Errorf("encode input of project %s: %w", project.Name, err)
	}
	if !tenant.ClosedAt.IsZero() && project.DeletionTimestamp.IsZero() {
		open := *project
		open.Status.ClosedAt = nil
		tenant.forReplacements, err = newTenant(&open, department, pools, refused, limits, pausedUntil)
	}
	return tenant, err
}

// digest returns the Version of a tenant. The department's document has the time zone, that of the node pools their
// schedulers, and that of the project whether it is closed.
func (t *Tenant) digest() (string, error) {
	encoded, err := json.Marshal([]any{
		t.Documents.Project, t.Documents.Department, t.Documents.NodePools, t.LongestExtension, t.SizeLimits, t.PausedUntil,
	})
	sum := sha256.Sum256(encoded)
	return string(sum[:]), err
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
