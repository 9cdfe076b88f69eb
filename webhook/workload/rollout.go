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

// RolloutPlan is how many pods a Deployment has, and how it replaces them.
type RolloutPlan struct {
	// Replicas is how many there are to be.
	Replicas int64
	// Rolling tells that old pods go as new ones come; else all old ones go first.
	Rolling bool
	// MaxSurge is how many more there may be meanwhile, Unavailable how many fewer;
	// never both 0 in a Plan that is Rolling.
	MaxSurge, MaxUnavailable int64
}

// ParseRolloutPlan reads it from a Deployment's JSON, with Kubernetes' defaults, and its
// rounding of percentages.
func ParseRolloutPlan(raw []byte) (RolloutPlan, error) {
	var deployment struct {
		Spec struct {
			Replicas *int32                    `json:"replicas"`
			Strategy appsv1.DeploymentStrategy `json:"strategy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &deployment); err != nil {
		return RolloutPlan{}, fmt.Errorf("reading the Deployment: %w", err)
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
		plan.MaxUnavailable = 1 // as the Deployment controller has it
	}
	return plan, nil
}

func resolveIntOrPercent(value *intstr.IntOrString, of int64, up bool) (int64, error) {
	quarter := intstr.FromString("25%")
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, quarter), int(of), up)
	return int64(n), err
}

// WarnRollout says what of the plan can never come about: of pods as this one, which
// the policies are done with, and of a project with these pools.
func WarnRollout(plan RolloutPlan, pod map[string]any, project string, pools []input.NodePool) []merge.Finding {
	charge, currency := podCharge(pod)
	if charge == 0 || plan.Replicas == 0 {
		return nil
	}
	may, whose := quotaForPod(pod, project, currency, pools)
	if charge > may {
		return nil // no such pod is let in, which is said elsewhere
	}
	if fit := int64(may / charge); fit < plan.Replicas {
		return []merge.Finding{{
			Field: "spec.replicas",
			Message: fmt.Sprintf("%d pods of %s would count as %s; %s, so that no more than %d can run",
				plan.Replicas, charge.Describe(), (charge * workload.Milli(plan.Replicas)).Describe(), whose, fit),
			Fix: fmt.Sprintf("set it to %d, or ask an administrator of the department for more", fit),
		}}
	}
	// With a pod less first, a rolling update goes on however full the quota is.
	if !plan.Rolling || plan.MaxUnavailable > 0 || charge*workload.Milli(plan.Replicas+1) <= may {
		return nil
	}
	return []merge.Finding{{
		Field: "spec.strategy",
		Message: fmt.Sprintf("a rolling update of this Deployment would never end: it begins with a pod more than its %d of %s, and %s",
			plan.Replicas, charge.Describe(), whose),
		Fix: "set rollingUpdate to maxSurge: 0 and maxUnavailable: 1, or type to Recreate",
	}}
}

// podCharge is what a pod is charged, and in which currency; 0 where it has none.
func podCharge(pod map[string]any) (charge workload.Milli, currency corev1.ResourceName) {
	for _, container := range schema.AsList(schema.AsMap(pod["spec"])["containers"]) {
		for name, amount := range schema.AsMap(schema.AsMap(schema.AsMap(container)["resources"])["requests"]) {
			if name != string(v1alpha1.ResourceGPUMilli) && !strings.HasPrefix(name, string(v1alpha1.ResourceGPUMilli)+".") {
				continue
			}
			if q, err := resource.ParseQuantity(fmt.Sprint(amount)); err == nil {
				charge, currency = charge+workload.Milli(q.Value()), corev1.ResourceName(name)
			}
		}
	}
	return charge, currency
}

// quotaForPod is the most that pods like this one can ever be charged together,
// and that in words.
func quotaForPod(pod map[string]any, project string, currency corev1.ResourceName, pools []input.NodePool) (may workload.Milli, whose string) {
	class, _ := schema.AsMap(pod["spec"])["priorityClassName"].(string)
	stays := class == v1alpha1.PriorityClassInteractive || class == v1alpha1.PriorityClassInference
	var names []string
	for i := range pools {
		if pool := &pools[i]; pool.QuotaResource == currency {
			names = append(names, pool.Name)
			if stays {
				may += min(pool.Guaranteed, pool.Limit)
			} else {
				may += pool.Limit
			}
		}
	}
	whose = fmt.Sprintf("project %s may have %s of node pool %s", project, may.Describe(), strings.Join(names, " and "))
	if stays {
		whose += " for pods that cannot be preempted"
	}
	return may, whose
}
