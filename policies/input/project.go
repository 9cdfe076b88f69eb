// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package facts is what policies are told beside the object: input.project,
// input.department, input.nodePools and input.nodePool.
//
// Enters: a Project, its Department and the NodePools, as the API server has
// them; for what is promised, the projects of a department, or all departments.
// Leaves: what policies read of them, with everything resolved: the quotas in
// GPUs, the limits that hold for each type of workload, the price of each slice.
// The same objects always give the same facts, and every field is always there,
// so that a policy never meets an undefined value; but for a quota of CPU or
// memory, which is not there where there is none.
//
// It never reads the cluster, and never tells what changes from moment to
// moment, such as the present use.
package input

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Project is input.project.
type Project struct {
	// Name is the project's name, Namespace where it works, Department whose it is.
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	Department string `json:"department"`
	// Labels and Annotations are those of the Project object.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Phase is the step of its life: Active, Expiring, Expired, ...; Active where
	// nothing was recorded yet.
	Phase v1alpha1.ProjectPhase `json:"phase"`
	// QuotaApplied tells that its quotas are counted for the present generation.
	QuotaApplied bool `json:"quotaApplied"`
	// Limits are what holds for each type of workload: train, interactive and
	// inference, the department's limits taken in.
	Limits map[v1alpha1.WorkloadType]Limits `json:"limits"`
	// Resources are how much CPU and memory its pods may request at once.
	Resources Resources `json:"resources"`
	// PodSecurity is the level to which its namespace is held; see [PodSecurity].
	PodSecurity v1alpha1.PodSecurity `json:"podSecurity"`
}

// Limits are the limits of a type of workload.
type Limits struct {
	// MaxRuntime is the longest running time, as people write it: 48h. Empty is none.
	MaxRuntime string `json:"maxRuntime"`
	// MaxRuntimeSeconds is the same in seconds; 0 is none.
	MaxRuntimeSeconds int64 `json:"maxRuntimeSeconds"`
	// IdleTimeoutSeconds is the longest time without use; 0 is none.
	IdleTimeoutSeconds int64 `json:"idleTimeoutSeconds"`
}

// NewProject is what policies are told of a project. The department may be nil,
// where it is missing.
func NewProject(project *v1alpha1.Project, department *v1alpha1.Department) Project {
	facts := Project{
		Name:         project.Name,
		Namespace:    project.NamespaceName(),
		Department:   project.Spec.Department,
		Labels:       publicMetadata(project.Labels),
		Annotations:  publicMetadata(project.Annotations),
		Phase:        project.Status.Phase,
		QuotaApplied: isQuotaApplied(project),
		Limits:       make(map[v1alpha1.WorkloadType]Limits, len(v1alpha1.WorkloadTypes)),
		Resources:    newResources(project.Spec.Resources),
		PodSecurity:  EffectivePodSecurity(project, department),
	}
	if facts.Phase == "" {
		facts.Phase = v1alpha1.ProjectActive
	}
	var bound map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits
	if department != nil {
		bound = department.Spec.Workloads
	}
	for _, t := range v1alpha1.WorkloadTypes {
		limits := v1alpha1.EffectiveLimits(t, project.Spec.Workloads, bound)
		facts.Limits[t] = Limits{
			MaxRuntime:         limits.MaxRuntime.String(),
			MaxRuntimeSeconds:  int64(limits.MaxRuntime.Length().Seconds()),
			IdleTimeoutSeconds: int64(limits.IdleTimeout.Length().Seconds()),
		}
	}
	return facts
}

// isQuotaApplied tells whether the quotas of the spec as it is now are counted.
func isQuotaApplied(project *v1alpha1.Project) bool {
	condition := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaApplied)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == project.Generation
}

// publicMetadata keeps a map from being null in JSON, and leaves out what kubectl
// keeps of the last apply.
func publicMetadata(m map[string]string) map[string]string {
	kept := make(map[string]string, len(m))
	for key, value := range m {
		if key != "kubectl.kubernetes.io/last-applied-configuration" {
			kept[key] = value
		}
	}
	return kept
}

// Department is input.department.
type Department struct {
	// Name is the department's name, DisplayName what people call it.
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	// Labels and Annotations are those of the Department object.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// TimeZone is that of input.now, as the department names it; UTC by default.
	TimeZone string `json:"timeZone"`
	// Resources are how much CPU and memory the pods of all its projects may request
	// at once.
	Resources Resources `json:"resources"`
	// Oversubscription is Allow where its projects' guarantees may add up to more
	// than its own; else Refuse.
	Oversubscription v1alpha1.Oversubscription `json:"oversubscription"`
}

// NewDepartment is what policies are told of a department.
func NewDepartment(department *v1alpha1.Department) Department {
	facts := Department{
		Name:             department.Name,
		DisplayName:      string(department.Spec.DisplayName),
		Labels:           publicMetadata(department.Labels),
		Annotations:      publicMetadata(department.Annotations),
		TimeZone:         "UTC",
		Resources:        newResources(department.Spec.Resources),
		Oversubscription: cmp.Or(department.Spec.Oversubscription, v1alpha1.OversubscriptionDeny),
	}
	if zone := department.Spec.Notices.TimeZone; zone != "" {
		facts.TimeZone = zone
	}
	return facts
}

// podSecurityLevels are the levels of Pod Security, the loosest first.
var podSecurityLevels = []v1alpha1.PodSecurity{
	v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted,
}

// EffectivePodSecurity is the level to which a project's namespace is held: the stricter
// of its own and its department's, which is baseline where it says none. The
// department may be nil.
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

// Resources are the most CPU and memory that pods may request at once, as
// quantities: "64", "512Gi". What is not limited is left out; nothing else of what
// policies are told ever is.
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
