// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package input builds the policies' input about tenants: input.project, input.department, input.nodePools and
// input.nodePool.
//
// It derives the values from Projects, Departments and NodePools and resolves them: quotas in GPUs, the effective limits
// of each workload type, the charge of each MIG slice. The same objects always give the same input. Every field is
// always present, so that a policy never reads an undefined value, except for a quota of CPU or memory without a limit.
//
// The package never reads the cluster, and has nothing that changes frequently, such as the current use.
package input

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Project is input.project.
type Project struct {
	// Name is the project's name, and Namespace and Department those of the project.
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	Department string `json:"department"`
	// Labels and Annotations are those of the Project object.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Phase is the project's phase: Active, Expiring, Expired, ... The default is Active. From the
	// request to delete the project it is Deleting.
	Phase v1alpha1.ProjectPhase `json:"phase"`
	// Closed reports whether the project accepts no new pods with GPUs: it has expired, or is being deleted. For a pod
	// that replaces one of a workload that ran before the project expired, it is false.
	Closed bool `json:"closed"`
	// ClosedSince is since when, as RFC 3339 in the time zone of the department; empty while the project is open, and
	// until lifecycle has recorded the time.
	ClosedSince string `json:"closedSince"`
	// Owners are the names of the project's owners.
	Owners []string `json:"owners"`
	// Limits are the effective limits of each workload type, with those of the department.
	Limits map[v1alpha1.WorkloadType]Limits `json:"limits"`
	// Activity is the use from which on a pod with GPUs counts as active, and the time over which it is averaged:
	// 5%/5m.
	Activity string `json:"activity"`
	// Resources limit the CPU and memory requests of all its pods.
	Resources Resources `json:"resources"`
	// Objects limit the number of objects in its namespace, with those of the department: the keys are names of a
	// ResourceQuota, such as pods or count/jobs.batch.
	Objects v1alpha1.ObjectLimits `json:"objects"`
	// RefusedNodes are the labels of nodes on which its pods without GPUs may not run. They are empty in objects.
	RefusedNodes []NodeLabel `json:"refusedNodes"`
	// OpenPools are the node pools of the cluster on whose nodes its pods without GPUs may run. They are empty in objects.
	OpenPools []OpenPool `json:"openPools"`
	// UnlistedResources are the extended resources that no list knows and that nodes of a node pool of the cluster offer, or
	// offered in the last day: by name, the first of these node pools. They are empty in objects.
	UnlistedResources map[string]string `json:"unlistedResources"`
	// PodSecurity is the effective level of its namespace; see [EffectivePodSecurity].
	PodSecurity v1alpha1.PodSecurity `json:"podSecurity"`
}

// Limits are the limits of a workload type.
type Limits struct {
	// MaxRuntime is the maximum runtime in Sluice's notation: 48h. Empty means no limit.
	MaxRuntime string `json:"maxRuntime"`
	// MaxRuntimeSeconds is the same in seconds; 0 means no limit.
	MaxRuntimeSeconds int64 `json:"maxRuntimeSeconds"`
	// IdleTimeoutSeconds is the maximum idle time; 0 means no limit.
	IdleTimeoutSeconds int64 `json:"idleTimeoutSeconds"`
}

// NodeLabel is a label of nodes.
type NodeLabel struct {
	// Key and Value are the label.
	Key   string `json:"key"`
	Value string `json:"value"`
}

// RefusedNodes returns the labels of the nodes on which pods without GPUs may not run, sorted: those of the node pools
// with cpuPods Refuse.
func RefusedNodes(pools []v1alpha1.NodePool) []NodeLabel {
	labels := []NodeLabel{}
	for i := range pools {
		if pools[i].Spec.CPUPods == v1alpha1.CPUPodsRefuse {
			for key, value := range pools[i].Spec.NodeSelector { // one label, by the schema
				labels = append(labels, NodeLabel{key, value})
			}
		}
	}
	slices.SortFunc(labels, func(a, b NodeLabel) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value)) })
	return labels
}

// OpenPool is a node pool that accepts pods without GPUs and has nodes.
type OpenPool struct {
	// NodeSelector are the labels of its nodes, and Taints the lasting taints that all of them have.
	NodeSelector map[string]string `json:"nodeSelector"`
	Taints       []corev1.Taint    `json:"taints"`
}

// OpenPools returns the node pools on whose nodes pods without GPUs may run, sorted by name: those that do not refuse them
// and have nodes.
func OpenPools(pools []v1alpha1.NodePool) []OpenPool {
	open := []OpenPool{}
	for _, pool := range slices.SortedFunc(slices.Values(pools), func(a, b v1alpha1.NodePool) int { return cmp.Compare(a.Name, b.Name) }) {
		if pool.Spec.CPUPods != v1alpha1.CPUPodsRefuse && pool.Status.Nodes > 0 {
			open = append(open, OpenPool{publicMetadata(pool.Spec.NodeSelector), append([]corev1.Taint{}, pool.Status.Taints...)})
		}
	}
	return open
}

// UnlistedResources returns the extended resources that nodes of the node pools offer and no list knows, each with the
// first node pool by name.
func UnlistedResources(pools []v1alpha1.NodePool, units workload.ResourceUnits) map[string]string {
	unlisted := map[string]string{}
	for i := range pools {
		for _, offered := range pools[i].Status.UnlistedResources {
			if first, ok := unlisted[offered.Name]; units.IsUnlisted(corev1.ResourceName(offered.Name)) && (!ok || pools[i].Name < first) {
				unlisted[offered.Name] = pools[i].Name
			}
		}
	}
	return unlisted
}

// NewProject returns input.project. The department is nil if it does not exist.
func NewProject(project *v1alpha1.Project, department *v1alpha1.Department, refused []NodeLabel) Project {
	result := Project{
		Name:         project.Name,
		Namespace:    project.NamespaceName(),
		Department:   project.Spec.Department,
		Labels:       publicMetadata(project.Labels),
		Annotations:  publicMetadata(project.Annotations),
		Phase:        project.Status.Phase,
		Closed:       project.IsClosed(),
		Owners:       make([]string, len(project.Spec.Owners)),
		Limits:       make(map[v1alpha1.WorkloadType]Limits, len(v1alpha1.WorkloadTypes)),
		Resources:    newResources(project.Spec.Resources),
		RefusedNodes: append([]NodeLabel{}, refused...),
		OpenPools:    []OpenPool{},
		PodSecurity:  EffectivePodSecurity(project, department),

		UnlistedResources: map[string]string{},
	}
	switch {
	case !project.DeletionTimestamp.IsZero():
		result.Phase = v1alpha1.ProjectDeleting
	case result.Phase == "":
		result.Phase = v1alpha1.ProjectActive
	}
	if closed := project.Status.ClosedAt; closed != nil {
		result.ClosedSince = closed.In(timeZone(department)).Format(time.RFC3339)
	}
	for i := range project.Spec.Owners {
		result.Owners[i] = string(project.Spec.Owners[i].Name)
	}
	var bounds map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits
	var objects v1alpha1.ObjectLimits
	var activity v1alpha1.ActivityTerms
	if department != nil {
		bounds, objects, activity = department.Spec.Workloads, department.Spec.Objects, department.Spec.Activity
	}
	result.Activity = activity.String()
	result.Objects = v1alpha1.EffectiveObjectLimits(project.Spec.Objects, objects)
	for _, t := range v1alpha1.WorkloadTypes {
		limits := v1alpha1.TightestLimits(t, project.Spec.Workloads, bounds)
		result.Limits[t] = Limits{
			MaxRuntime:         limits.MaxRuntime.String(),
			MaxRuntimeSeconds:  int64(limits.MaxRuntime.Length().Seconds()),
			IdleTimeoutSeconds: int64(limits.IdleTimeout.Length().Seconds()),
		}
	}
	return result
}

// timeZone returns the time zone of a department, or UTC.
func timeZone(department *v1alpha1.Department) *time.Location {
	if department != nil {
		if zone, err := time.LoadLocation(department.Spec.Notices.TimeZone); err == nil {
			return zone
		}
	}
	return time.UTC
}

// publicMetadata returns a copy that is never nil, without kubectl's copy of the last applied object.
func publicMetadata(m map[string]string) map[string]string {
	result := make(map[string]string, len(m))
	for key, value := range m {
		if key != "kubectl.kubernetes.io/last-applied-configuration" {
			result[key] = value
		}
	}
	return result
}

// Department is input.department.
type Department struct {
	// Name is the department's name, and DisplayName its name for people.
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	// Labels and Annotations are those of the Department object.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// TimeZone is the time zone of input.now. The default is UTC.
	TimeZone string `json:"timeZone"`
	// Holidays are the holidays of the department, with their first and their last day, such as 2026-12-24.
	Holidays []v1alpha1.Holiday `json:"holidays"`
	// Resources limit the CPU and memory requests of the pods of all its projects.
	Resources Resources `json:"resources"`
	// Oversubscription is Allow if its projects' guarantees can exceed its own in total, and otherwise Deny.
	Oversubscription v1alpha1.Oversubscription `json:"oversubscription"`
	// Services are the Services and Ingresses that its projects can have.
	Services v1alpha1.ServiceTerms `json:"services"`
}

// newServices returns the terms with the default of the schema.
func newServices(terms v1alpha1.ServiceTerms) v1alpha1.ServiceTerms {
	if terms.Types == nil {
		terms.Types = []v1alpha1.ServiceType{"ClusterIP"}
	}
	if terms.IngressHosts == nil {
		terms.IngressHosts = []v1alpha1.IngressHost{}
	}
	return terms
}

// NewDepartment returns input.department.
func NewDepartment(department *v1alpha1.Department) Department {
	result := Department{
		Name:             department.Name,
		DisplayName:      string(department.Spec.DisplayName),
		Labels:           publicMetadata(department.Labels),
		Annotations:      publicMetadata(department.Annotations),
		TimeZone:         "UTC",
		Holidays:         slices.Concat([]v1alpha1.Holiday{}, department.Spec.Holidays),
		Resources:        newResources(department.Spec.Resources),
		Oversubscription: cmp.Or(department.Spec.Oversubscription, v1alpha1.OversubscriptionDeny),
		Services:         newServices(department.Spec.Services),
	}
	if zone := department.Spec.Notices.TimeZone; zone != "" {
		result.TimeZone = zone
	}
	return result
}

// podSecurityLevels are the levels of Pod Security in ascending order of strictness.
var podSecurityLevels = []v1alpha1.PodSecurity{
	v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted,
}

// EffectivePodSecurity returns the level of a project's namespace: the stricter of its own and its department's. The
// default of a department, and of a missing one, is baseline.
func EffectivePodSecurity(project *v1alpha1.Project, department *v1alpha1.Department) v1alpha1.PodSecurity {
	level := v1alpha1.PodSecurityBaseline
	if department != nil && slices.Contains(podSecurityLevels, department.Spec.PodSecurity) {
		level = department.Spec.PodSecurity
	}
	if slices.Index(podSecurityLevels, project.Spec.PodSecurity) > slices.Index(podSecurityLevels, level) {
		level = project.Spec.PodSecurity
	}
	return level
}

// Resources are limits of CPU and memory requests, as quantities: "64", "512Gi". A resource without a limit is omitted.
type Resources struct {
	// CPU is in cores, Memory in bytes.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

func newResources(quota v1alpha1.ResourceQuota) Resources {
	return Resources{CPU: formatQuantity(quota.CPU), Memory: formatQuantity(quota.Memory)}
}

func formatQuantity(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}
