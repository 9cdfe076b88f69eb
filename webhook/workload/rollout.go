// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// RolloutPlan is a Deployment's number of pods, and how it replaces them.
type RolloutPlan struct {
	// Replicas is the desired number of pods.
	Replicas int64
	// Rolling reports whether the Deployment replaces pods step by step; otherwise it deletes all old pods first.
	Rolling bool
	// MaxSurge is the number of additional pods during a rolling update, and MaxUnavailable the number of missing
	// ones. At least one of them is above 0.
	MaxSurge, MaxUnavailable int64
}

// ParseRolloutPlan decodes the plan from a Deployment's JSON. It applies the defaults of Kubernetes and rounds
// percentages as Kubernetes does.
func ParseRolloutPlan(raw []byte) (RolloutPlan, error) {
	var deployment struct {
		Spec struct {
			Replicas *int32                    `json:"replicas"`
			Strategy appsv1.DeploymentStrategy `json:"strategy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &deployment); err != nil {
		return RolloutPlan{}, fmt.Errorf("decode Deployment: %w", err)
	}
	plan := RolloutPlan{Replicas: 1}
	if replicas := deployment.Spec.Replicas; replicas != nil {
		plan.Replicas = int64(*replicas)
	}
	strategy := &deployment.Spec.Strategy
	if plan.Rolling = strategy.Type != appsv1.RecreateDeploymentStrategyType; !plan.Rolling {
		return plan, nil
	}
	var rolling appsv1.RollingUpdateDeployment
	if strategy.RollingUpdate != nil {
		rolling = *strategy.RollingUpdate
	}
	var err error
	if plan.MaxSurge, err = resolveIntOrPercent(rolling.MaxSurge, plan.Replicas, true); err != nil {
		return RolloutPlan{}, fmt.Errorf("spec.strategy.rollingUpdate.maxSurge: %w", err)
	}
	if plan.MaxUnavailable, err = resolveIntOrPercent(rolling.MaxUnavailable, plan.Replicas, false); err != nil {
		return RolloutPlan{}, fmt.Errorf("spec.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	if plan.MaxSurge == 0 && plan.MaxUnavailable == 0 {
		plan.MaxUnavailable = 1 // as in the Deployment controller
	}
	return plan, nil
}

func resolveIntOrPercent(value *intstr.IntOrString, total int64, roundUp bool) (int64, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromString("25%")), int(total), roundUp)
	return int64(n), err
}

// WarnRollout returns warnings of a plan that can never finish within the project's quota. The pod is a template's
// pod with the policies' changes.
func WarnRollout(plan RolloutPlan, pod map[string]any, project string, pools []input.NodePool) []merge.Finding {
	charge, counted := podCharge(pod)
	if charge == 0 || plan.Replicas == 0 {
		return nil
	}
	quota, quotaText := quotaForPods(project, counted, pools)
	if charge > quota {
		return nil // the pod is denied, which another message reports
	}
	if fit := int64(quota / charge); fit < plan.Replicas {
		return []merge.Finding{{
			Field: "spec.replicas",
			Message: fmt.Sprintf("%d pods of %s each need a quota of %s; %s, so that at most %d can run",
				plan.Replicas, charge.Describe(), (charge * workload.Milli(plan.Replicas)).Describe(), quotaText, fit),
			Fix: fmt.Sprintf("set it to %d, or request more from an administrator of the department", fit),
		}}
	}
	// A rolling update that can delete a pod first never needs more quota.
	if !plan.Rolling || plan.MaxUnavailable > 0 || charge*workload.Milli(plan.Replicas+1) <= quota {
		return nil
	}
	return []merge.Finding{{
		Field: "spec.strategy",
		Message: fmt.Sprintf("a rolling update of this Deployment would never finish: it starts an additional pod beside its %d of %s, and %s",
			plan.Replicas, charge.Describe(), quotaText),
		Fix: "set rollingUpdate to maxSurge: 0 and maxUnavailable: 1, or type to Recreate",
	}}
}

// podCharge returns the GPU quota that a pod uses, and the resource that limits it: that of the guarantee if it counts
// the pod. It returns 0 if the pod uses none.
func podCharge(pod map[string]any) (charge workload.Milli, counted corev1.ResourceName) {
	for _, container := range schema.AsList(schema.AsMap(pod["spec"])["containers"]) {
		for name, amount := range schema.AsMap(schema.AsMap(schema.AsMap(container)["resources"])["requests"]) {
			resourceName := corev1.ResourceName(name)
			if v1alpha1.IsGuaranteedMilli(resourceName) || v1alpha1.IsGPUMilli(resourceName) && counted == "" {
				counted = resourceName
			}
			if q, err := resource.ParseQuantity(fmt.Sprint(amount)); err == nil && v1alpha1.IsGPUMilli(resourceName) {
				charge += workload.Milli(q.Value())
			}
		}
	}
	return charge, counted
}

// quotaForPods returns the quota that all pods that count in the resource can use together, as an amount and as text.
func quotaForPods(project string, counted corev1.ResourceName, pools []input.NodePool) (quota workload.Milli, text string) {
	var names []string
	for i := range pools {
		switch pool := &pools[i]; counted {
		case pool.GuaranteedResource:
			names, quota = append(names, pool.Name), quota+min(pool.Guaranteed, pool.Limit)
		case pool.QuotaResource:
			names, quota = append(names, pool.Name), quota+pool.Limit
		}
	}
	text = fmt.Sprintf("project %s has a quota of %s in node pool %s", project, quota.Describe(), strings.Join(names, " and "))
	if v1alpha1.IsGuaranteedMilli(counted) {
		text += " for non-preemptible pods"
	}
	return quota, text
}
