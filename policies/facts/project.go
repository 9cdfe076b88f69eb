// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"k8s.io/apimachinery/pkg/api/meta"
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

// OfProject is what policies are told of a project. The department may be nil,
// where it is missing.
func OfProject(project *v1alpha1.Project, department *v1alpha1.Department) Project {
	facts := Project{
		Name:         project.Name,
		Namespace:    project.NamespaceName(),
		Department:   project.Spec.Department,
		Labels:       orEmpty(project.Labels),
		Annotations:  orEmpty(project.Annotations),
		Phase:        project.Status.Phase,
		QuotaApplied: quotaApplied(project),
		Limits:       make(map[v1alpha1.WorkloadType]Limits, len(v1alpha1.WorkloadTypes)),
		Resources:    resourcesOf(project.Spec.Resources),
		PodSecurity:  PodSecurity(project, department),
	}
	if facts.Phase == "" {
		facts.Phase = v1alpha1.ProjectActive
	}
	var bound map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits
	if department != nil {
		bound = department.Spec.Workloads
	}
	for _, t := range v1alpha1.WorkloadTypes {
		limits := v1alpha1.LimitsOf(t, project.Spec.Workloads, bound)
		facts.Limits[t] = Limits{
			MaxRuntime:         limits.MaxRuntime.String(),
			MaxRuntimeSeconds:  int64(limits.MaxRuntime.Length().Seconds()),
			IdleTimeoutSeconds: int64(limits.IdleTimeout.Length().Seconds()),
		}
	}
	return facts
}

// quotaApplied tells whether the quotas of the spec as it is now are counted.
func quotaApplied(project *v1alpha1.Project) bool {
	condition := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaApplied)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == project.Generation
}

// orEmpty keeps a map from being null in JSON, and leaves out what kubectl
// keeps of the last apply.
func orEmpty(m map[string]string) map[string]string {
	kept := make(map[string]string, len(m))
	for key, value := range m {
		if key != "kubectl.kubernetes.io/last-applied-configuration" {
			kept[key] = value
		}
	}
	return kept
}
