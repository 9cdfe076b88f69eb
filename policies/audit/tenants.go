// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
)

// Tenants returns the tenant of each governed namespace. It is not safe for concurrent use.
type Tenants struct {
	projects    map[string]*v1alpha1.Project
	departments map[string]*v1alpha1.Department
	pools       []v1alpha1.NodePool
	limits      decision.SizeLimits
	added       []v1alpha1.PodTemplates
	others      []v1alpha1.ResourcePattern
	templates   workloadkind.AddedTemplates
	namespaces  func(name string) (*corev1.Namespace, error)

	// last is the tenant of the last call: lists are sorted by namespace, and all tenants together would take much memory.
	lastNamespace string
	last          *decision.Tenant
	lastErr       error
}

// NewTenants returns the tenants of a cluster. It keeps the objects and does not modify them. A nil namespace stands for one without
// labels and annotations.
func NewTenants(
	projects []v1alpha1.Project, departments []v1alpha1.Department, pools []v1alpha1.NodePool, parameters *v1alpha1.AdmissionParametersSpec,
	namespaces func(name string) (*corev1.Namespace, error),
) *Tenants {
	t := &Tenants{
		projects: make(map[string]*v1alpha1.Project, len(projects)), departments: make(map[string]*v1alpha1.Department, len(departments)),
		pools: pools, others: parameters.NonGPUResources, added: parameters.PodTemplates,
		templates: workloadkind.NewAddedTemplates(parameters.PodTemplates), namespaces: namespaces,
		limits: decision.SizeLimits{Labels: int(parameters.MaxLabels), Annotations: int(parameters.MaxAnnotations)},
	}
	for i := range projects {
		// The objects of a project that is being deleted end with it.
		if project := &projects[i]; project.Status.Namespace != nil && project.DeletionTimestamp.IsZero() {
			t.projects[project.Status.Namespace.Name] = project
		}
	}
	for i := range departments {
		t.departments[departments[i].Name] = &departments[i]
	}
	return t
}

// Len returns the number of governed namespaces.
func (t *Tenants) Len() int { return len(t.projects) }

// Owns reports whether a namespace is governed.
func (t *Tenants) Owns(namespace string) bool { return t.projects[namespace] != nil }

// Get returns the tenant of a governed namespace, without a pause: a pause changes no finding. In an expired project it is the
// tenant of pods that replace others, since existing objects stay allowed.
func (t *Tenants) Get(namespace string) (*decision.Tenant, error) {
	if t.lastNamespace == namespace && (t.last != nil || t.lastErr != nil) {
		return t.last, t.lastErr
	}
	t.lastNamespace = namespace
	t.last, t.lastErr = t.create(namespace)
	return t.last, t.lastErr
}

func (t *Tenants) create(namespace string) (*decision.Tenant, error) {
	project := t.projects[namespace]
	if project == nil {
		return nil, fmt.Errorf("no project owns the namespace %s", namespace)
	}
	department := t.departments[project.Spec.Department]
	if department == nil {
		return nil, fmt.Errorf("project %s: spec.department: there is no Department %q", project.Name, project.Spec.Department)
	}
	object, err := t.namespaces(namespace)
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	tenant, err := decision.NewTenant(decision.TenantSources{
		Project: project, Department: department, NodePools: t.pools, SizeLimits: t.limits, PodTemplates: t.added, NonGPUResources: t.others,
		Namespace: object,
	})
	if err != nil {
		return nil, err
	}
	if tenant.ForReplacements != nil {
		return tenant.ForReplacements, nil
	}
	return tenant, nil
}
