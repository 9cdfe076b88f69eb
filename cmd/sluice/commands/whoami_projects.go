// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// maxOwnProjects is the largest number of projects that whoami reads, one request each. Only
// administrators of large departments have more.
const maxOwnProjects = 50

// readIdentity reads the projects that the user may get by name.
func readIdentity(ctx context.Context, c client.Reader, access ownAccess) (*identity, error) {
	document := &identity{
		User: access.user, Groups: access.groups, Projects: []ownProject{}, AllProjects: access.all, Incomplete: access.incomplete,
		More: max(0, len(access.projects)-maxOwnProjects),
	}
	r := identityReader{Reader: c, access: &access, departments: map[string]*v1alpha1.Department{}, pools: map[string]*v1alpha1.NodePool{}}
	projects, err := access.readProjects(ctx, c, maxOwnProjects)
	if err != nil {
		return nil, err
	}
	for i := range projects {
		own, err := r.newOwnProject(ctx, &projects[i])
		if err != nil {
			return nil, err
		}
		document.Projects = append(document.Projects, own)
	}
	return document, nil
}

// identityReader reads what belongs to several projects once.
type identityReader struct {
	client.Reader
	access      *ownAccess
	departments map[string]*v1alpha1.Department
	pools       map[string]*v1alpha1.NodePool
}

func (r *identityReader) newOwnProject(ctx context.Context, project *v1alpha1.Project) (ownProject, error) {
	own := ownProject{
		Name: project.Name, Department: project.Spec.Department, Namespace: project.NamespaceName(), Phase: project.Status.Phase,
		ExpiresAt: optionalTime(project.Status.ExpiresAt), Pools: []ownPool{},
	}
	department, err := readByName(ctx, r, r.departments, r.access.departments, project.Spec.Department)
	if err != nil {
		return own, fmt.Errorf("get department %s: %w", project.Spec.Department, err)
	}
	own.Roles = r.access.rolesOf(project, department)
	for i := range project.Status.NodePools {
		pool, err := readByName(ctx, r, r.pools, r.access.nodePools, project.Status.NodePools[i].Name)
		if err != nil {
			return own, fmt.Errorf("get node pool %s: %w", project.Status.NodePools[i].Name, err)
		}
		own.Pools = append(own.Pools, newOwnPool(&project.Status.NodePools[i], pool))
	}
	var parameters v1alpha1.ProjectParametersList
	err = r.List(ctx, &parameters, client.InNamespace(own.Namespace))
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) { // the namespace may not be governed yet
		return own, fmt.Errorf("list the parameters of project %s: %w", project.Name, err)
	}
	for i := range parameters.Items {
		own.addParameters(&parameters.Items[i])
	}
	return own, nil
}

// addParameters adds the terms of the project, or the images that a policy allows.
func (p *ownProject) addParameters(parameters *v1alpha1.ProjectParameters) {
	spec := &parameters.Spec
	if parameters.Name == v1alpha1.ProjectParametersName {
		p.Services, p.TimeLimits = &spec.Services, spec.TimeLimits
	}
	if len(spec.Images) > 0 {
		p.Images = append(p.Images, ownImages{Name: parameters.Name, Images: spec.Images})
	}
}

// readByName returns a cluster-scoped object that the user may get, or nil.
func readByName[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, known map[string]P, readable []string, name string) (P, error) {
	if object, ok := known[name]; ok || !slices.Contains(readable, name) {
		return object, nil
	}
	object := P(new(T))
	err := c.Get(ctx, types.NamespacedName{Name: name}, object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		object, err = nil, nil
	}
	if err == nil {
		known[name] = object
	}
	return object, err
}

// newOwnPool returns the quota of a project in a node pool. The pool may be nil.
func newOwnPool(use *v1alpha1.PoolUsage, pool *v1alpha1.NodePool) ownPool {
	free := use.Limit.DeepCopy()
	for _, taken := range []resource.Quantity{use.Allocated, use.Unscheduled} {
		free.Sub(taken)
	}
	if free.Sign() < 0 {
		free = resource.Quantity{}
	}
	own := ownPool{
		Name: use.Name, Guaranteed: use.Guaranteed.String(), Limit: use.Limit.String(), Used: use.Allocated.String(),
		Pending: use.Pending.String(), Free: free.String(),
	}
	if pool == nil {
		return own
	}
	own.Sharing, own.GPUs = string(pool.Spec.Sharing), pool.Status.GPUs
	for i := range pool.Status.Products {
		own.Models = append(own.Models, pool.Status.Products[i].Name)
	}
	own.Slices = migProfiles(pool)
	own.PerGPU, own.PreemptiblePerGPU = pool.MaxRequests(false), pool.MaxRequests(true)
	return own
}

// migProfiles returns the MIG profiles that the GPUs of a node pool offer, sorted.
func migProfiles(pool *v1alpha1.NodePool) []string {
	if pool.Spec.Sharing != v1alpha1.SharingMIG {
		return nil
	}
	var profiles []string
	for i := range pool.Status.Products {
		for _, profile := range pool.Status.Products[i].MIGProfiles {
			profiles = append(profiles, string(profile))
		}
	}
	slices.Sort(profiles)
	return slices.Compact(profiles)
}
