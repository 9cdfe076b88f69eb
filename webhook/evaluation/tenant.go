// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/input"
)

// Tenant is whose a namespace is. It is shared, and never changes.
type Tenant struct {
	// Project and Department are their names.
	Project, Department string
	// TimeZone is the department's time zone.
	TimeZone *time.Location
	// Documents are input.project, input.department and input.nodePools.
	Documents Documents
	// NodePools is the last of them, for who is no policy.
	NodePools []input.NodePool
	// Schedulers are those of the pools.
	Schedulers engine.Schedulers
	// Version changes whenever one of the documents does.
	Version string
}

// Documents are what policies read of a tenant.
type Documents struct {
	Project, Department, NodePools document.Document
}

// TenantResolver finds tenants. Its zero value but for Cache is ready to use, by any
// number of goroutines.
type TenantResolver struct {
	// Cache has the Projects, Departments and NodePools, with the index
	// [ProjectsByNamespace].
	Cache client.Reader

	mu      sync.RWMutex
	tenants map[string]*Tenant
}

// Resolve is whose the namespace is; nil where no project has it.
func (d *TenantResolver) Resolve(ctx context.Context, namespace string) (*Tenant, error) {
	project, err := d.getProject(ctx, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	var department v1alpha1.Department
	if err := d.Cache.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department); err != nil {
		return nil, fmt.Errorf("reading department %s of project %s: %w", project.Spec.Department, project.Name, err)
	}
	pools, err := d.getNodePools(ctx, project)
	if err != nil {
		return nil, err
	}
	version := tenantVersion(project, &department, pools)
	d.mu.RLock()
	tenant := d.tenants[namespace]
	d.mu.RUnlock()
	if tenant != nil && tenant.Version == version {
		return tenant, nil
	}
	if tenant, err = newTenant(project, &department, pools); err != nil {
		return nil, err
	}
	tenant.Version = version
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenants == nil {
		d.tenants = make(map[string]*Tenant)
	}
	d.tenants[namespace] = tenant
	return tenant, nil
}

// getProject is the one whose status says that it has the namespace: the label on
// the namespace is written after it.
func (d *TenantResolver) getProject(ctx context.Context, namespace string) (*v1alpha1.Project, error) {
	var projects v1alpha1.ProjectList
	if err := d.Cache.List(ctx, &projects, client.MatchingFields{ProjectNamespaceIndex: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the project of namespace %s: %w", namespace, err)
	}
	if len(projects.Items) == 0 {
		return nil, nil
	}
	return &projects.Items[0], nil
}

// getNodePools are the project's node pools that exist, by name.
func (d *TenantResolver) getNodePools(ctx context.Context, project *v1alpha1.Project) (map[string]*v1alpha1.NodePool, error) {
	pools := make(map[string]*v1alpha1.NodePool, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		var pool v1alpha1.NodePool
		err := d.Cache.Get(ctx, types.NamespacedName{Name: quota.Name}, &pool)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading node pool %s: %w", quota.Name, err)
		}
		pools[quota.Name] = &pool
	}
	return pools, nil
}

func tenantVersion(project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool) string {
	versions := make([]string, 0, len(pools))
	for _, pool := range pools {
		versions = append(versions, string(pool.UID)+"/"+pool.ResourceVersion)
	}
	slices.Sort(versions)
	return string(project.UID) + "/" + project.ResourceVersion + " " + string(department.UID) + "/" + department.ResourceVersion + " " + strings.Join(versions, " ")
}

func newTenant(project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool) (*Tenant, error) {
	tenant := &Tenant{
		Project: project.Name, Department: department.Name,
		NodePools: input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }),
	}
	schedulers := make([]v1alpha1.Scheduler, len(tenant.NodePools))
	for i := range tenant.NodePools {
		schedulers[i] = tenant.NodePools[i].Scheduler
	}
	tenant.Schedulers = engine.SchedulersOf(schedulers...)
	told := input.NewDepartment(department)
	zone, err := time.LoadLocation(told.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("department %s: time zone %q is not known: %w", department.Name, told.TimeZone, err)
	}
	tenant.TimeZone = zone
	for _, part := range []struct {
		into *document.Document
		from any
	}{
		{&tenant.Documents.Project, input.NewProject(project, department)},
		{&tenant.Documents.Department, told},
		{&tenant.Documents.NodePools, tenant.NodePools},
	} {
		if *part.into, err = document.FromGo(part.from); err != nil {
			return nil, fmt.Errorf("project %s: %w", project.Name, err)
		}
	}
	return tenant, nil
}

// ProjectNamespaceIndex is the index by which the cache finds the project that has
// a namespace: a project that was outbid for its namespace has none.
const ProjectNamespaceIndex = "status.namespace.name"

// IndexProjects makes the index.
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.Project{}, ProjectNamespaceIndex, func(object client.Object) []string {
		project, ok := object.(*v1alpha1.Project)
		if !ok || project.Status.Namespace == nil {
			return nil
		}
		return []string{project.Status.Namespace.Name}
	})
}
