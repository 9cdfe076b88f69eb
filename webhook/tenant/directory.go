// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

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
	"sluice.dev/policies/facts"
)

// Tenant is whose a namespace is. It is shared, and never changes.
type Tenant struct {
	// Project and Department are their names.
	Project, Department string
	// Zone is the department's time zone.
	Zone *time.Location
	// Documents are input.project, input.department and input.nodePools.
	Documents Documents
	// Pools is the last of them, for who is no policy.
	Pools []facts.Pool
	// Schedulers are those of the pools.
	Schedulers engine.Schedulers
	// Version changes whenever one of the documents does.
	Version string
}

// Documents are what policies read of a tenant.
type Documents struct {
	Project, Department, NodePools engine.Document
}

// Directory finds tenants. Its zero value but for Cache is ready to use, by any
// number of goroutines.
type Directory struct {
	// Cache has the Projects, Departments and NodePools, with the index
	// [ProjectsByNamespace].
	Cache client.Reader

	mu    sync.RWMutex
	known map[string]*Tenant
}

// Of is whose the namespace is; nil where no project has it.
func (d *Directory) Of(ctx context.Context, namespace string) (*Tenant, error) {
	project, err := d.project(ctx, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	var department v1alpha1.Department
	if err := d.Cache.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department); err != nil {
		return nil, fmt.Errorf("reading department %s of project %s: %w", project.Spec.Department, project.Name, err)
	}
	pools, err := d.pools(ctx, project)
	if err != nil {
		return nil, err
	}
	version := versionOf(project, &department, pools)
	d.mu.RLock()
	tenant := d.known[namespace]
	d.mu.RUnlock()
	if tenant != nil && tenant.Version == version {
		return tenant, nil
	}
	if tenant, err = describe(project, &department, pools); err != nil {
		return nil, err
	}
	tenant.Version = version
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = make(map[string]*Tenant)
	}
	d.known[namespace] = tenant
	return tenant, nil
}

// project is the one whose status says that it has the namespace: the label on
// the namespace is written after it.
func (d *Directory) project(ctx context.Context, namespace string) (*v1alpha1.Project, error) {
	var projects v1alpha1.ProjectList
	if err := d.Cache.List(ctx, &projects, client.MatchingFields{ProjectsByNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the project of namespace %s: %w", namespace, err)
	}
	if len(projects.Items) == 0 {
		return nil, nil
	}
	return &projects.Items[0], nil
}

// pools are the project's node pools that exist, by name.
func (d *Directory) pools(ctx context.Context, project *v1alpha1.Project) (map[string]*v1alpha1.NodePool, error) {
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

func versionOf(project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool) string {
	versions := make([]string, 0, len(pools))
	for _, pool := range pools {
		versions = append(versions, string(pool.UID)+"/"+pool.ResourceVersion)
	}
	slices.Sort(versions)
	return string(project.UID) + "/" + project.ResourceVersion + " " + string(department.UID) + "/" + department.ResourceVersion + " " + strings.Join(versions, " ")
}

func describe(project *v1alpha1.Project, department *v1alpha1.Department, pools map[string]*v1alpha1.NodePool) (*Tenant, error) {
	tenant := &Tenant{
		Project: project.Name, Department: department.Name,
		Pools: facts.OfPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }),
	}
	schedulers := make([]v1alpha1.Scheduler, len(tenant.Pools))
	for i := range tenant.Pools {
		schedulers[i] = tenant.Pools[i].Scheduler
	}
	tenant.Schedulers = engine.Serving(schedulers...)
	told := facts.OfDepartment(department)
	zone, err := time.LoadLocation(told.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("department %s: time zone %q is not known: %w", department.Name, told.TimeZone, err)
	}
	tenant.Zone = zone
	for _, document := range []struct {
		into *engine.Document
		from any
	}{
		{&tenant.Documents.Project, facts.OfProject(project, department)},
		{&tenant.Documents.Department, told},
		{&tenant.Documents.NodePools, tenant.Pools},
	} {
		if *document.into, err = engine.FromGo(document.from); err != nil {
			return nil, fmt.Errorf("project %s: %w", project.Name, err)
		}
	}
	return tenant, nil
}
