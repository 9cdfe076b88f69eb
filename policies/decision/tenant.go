// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
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
	// Documents are input.project, input.department, input.nodePools, input.namespace and input.use.
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
	// AddedTemplates are the pod templates of kinds that Sluice does not know.
	AddedTemplates workloadkind.AddedTemplates
	// Listed are the extended resources that the cluster's objects list, and Units those of all that it knows.
	Listed workload.ListedResources
	Units  workload.ResourceUnits
	// Version is a digest of all the other fields but Documents.Use and AddedTemplates, which no pod depends on: it changes only if one of them does, and not with
	// each new status of the project.
	Version string

	// ForReplacements is the tenant of pods that replace others in an expired project; nil in other projects.
	ForReplacements *Tenant
}

// Documents are the parts of the policies' input about a tenant. Use is as of the cache.
type Documents struct {
	Project, Department, NodePools, Namespace, Use document.Document
}

// namedDocument is a part of the policies' input with its name in it.
type namedDocument struct {
	name     string
	document *document.Document
}

// named returns all documents.
func (d *Documents) named() []namedDocument {
	return []namedDocument{
		{"project", &d.Project},
		{"department", &d.Department},
		{"nodePools", &d.NodePools},
		{"namespace", &d.Namespace},
		{useDocument, &d.Use},
	}
}

// useDocument is the name of the document that changes with each pod.
const useDocument = "use"

// TenantSources are the objects from which a tenant is made. NewTenant does not modify them.
type TenantSources struct {
	// Project owns the namespace, and Department is the project's.
	Project    *v1alpha1.Project
	Department *v1alpha1.Department
	// NodePools are all node pools of the cluster.
	NodePools []v1alpha1.NodePool
	// Namespace is the project's namespace; nil stands for one without labels and annotations.
	Namespace *corev1.Namespace
	// SizeLimits are those of the cluster's AdmissionParameters.
	SizeLimits SizeLimits
	// PausedUntil is the end of the present pause, in policy time; zero without one.
	PausedUntil time.Time
	// PodTemplates and NonGPUResources are those of the cluster's AdmissionParameters.
	PodTemplates    []v1alpha1.PodTemplates
	NonGPUResources []v1alpha1.ResourcePattern
}

// nodePool returns a node pool by name; nil if it does not exist.
func (s *TenantSources) nodePool(name string) *v1alpha1.NodePool {
	at := slices.IndexFunc(s.NodePools, func(pool v1alpha1.NodePool) bool { return pool.Name == name })
	if at < 0 {
		return nil
	}
	return &s.NodePools[at]
}

// NewTenant returns the tenant of a project's namespace.
func NewTenant(from TenantSources) (*Tenant, error) {
	project, department := from.Project, from.Department
	tenant := &Tenant{
		Project: project.Name, Department: department.Name, LongestExtension: department.Spec.Extensions.LongestExtension(), SizeLimits: from.SizeLimits,
		PausedUntil: from.PausedUntil, AddedTemplates: workloadkind.NewAddedTemplates(from.PodTemplates),
		NodePools: input.NewProjectPools(project, from.nodePool),
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
	projectInput := input.NewProject(project, department, input.RefusedNodes(from.NodePools))
	projectInput.OpenPools = input.OpenPools(from.NodePools)
	tenant.Listed = workload.NewListedResources(from.NodePools, from.NonGPUResources)
	tenant.Units = tenant.Listed.Units()
	projectInput.UnlistedResources = input.UnlistedResources(from.NodePools, tenant.Units)
	tenant.Closed, tenant.Owners = projectInput.Closed, projectInput.Owners
	if project.Status.ClosedAt != nil {
		tenant.ClosedAt = project.Status.ClosedAt.Time
	}
	namespace := from.Namespace
	if namespace == nil {
		namespace = &corev1.Namespace{}
		namespace.Name = project.NamespaceName()
	}
	values := map[string]any{
		"project": projectInput, "department": departmentInput, "nodePools": tenant.NodePools,
		"namespace": input.NewNamespace(namespace), useDocument: input.NewUse(project),
	}
	for _, part := range tenant.Documents.named() {
		if *part.document, err = document.FromGo(values[part.name]); err != nil {
			return nil, fmt.Errorf("encode input of project %s: %w", project.Name, err)
		}
	}
	if tenant.Version, err = tenant.digest(); err != nil {
		return nil, fmt.Errorf("encode input of project %s: %w", project.Name, err)
	}
	if !tenant.ClosedAt.IsZero() && project.DeletionTimestamp.IsZero() {
		open := *project
		open.Status.ClosedAt = nil
		from.Project = &open
		tenant.ForReplacements, err = NewTenant(from)
	}
	return tenant, err
}

// digest returns the Version of a tenant. The department's document has the time zone, that of the node pools their
// schedulers, and that of the project whether it is closed.
func (t *Tenant) digest() (string, error) {
	parts := []any{t.LongestExtension, t.SizeLimits, t.PausedUntil, t.Listed}
	for _, part := range t.Documents.named() {
		if part.name != useDocument {
			parts = append(parts, part.document)
		}
	}
	encoded, err := json.Marshal(parts)
	sum := sha256.Sum256(encoded)
	return string(sum[:]), err
}

// maxOwnersInMessage is the largest number of owners that a message names.
const maxOwnersInMessage = 3

// DescribeClosed returns why a closed project accepts no new GPU pods, and what to do, as policy core.project does.
func (t *Tenant) DescribeClosed() string {
	if t.ForReplacements == nil {
		return fmt.Sprintf("project %s is being deleted: it accepts no new pods with GPUs", t.Project)
	}
	owners := strings.Join(t.Owners, " or ")
	if len(t.Owners) > maxOwnersInMessage {
		owners = "such as " + strings.Join(t.Owners[:maxOwnersInMessage], ", ")
	}
	return fmt.Sprintf("project %s has expired: it has accepted no new pods with GPUs since %s (an owner, %s, can renew it with "+
		"sluice renew project/%s; then try again)", t.Project, t.ClosedAt.In(t.TimeZone).Format(time.DateOnly), owners, t.Project)
}
