// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Plan is how many pods a Deployment has, and how it replaces them.
type Plan struct {
	// Replicas is how many there are to be.
	Replicas int64
	// Rolling tells that old pods go as new ones come; else all old ones go first.
	Rolling bool
	// Surge is how many more there may be meanwhile, Unavailable how many fewer;
	// never both 0 in a Plan that is Rolling.
	Surge, Unavailable int64
}

// Read reads it from a Deployment's JSON, with Kubernetes' defaults, and its
// rounding of percentages.
func Read(raw []byte) (Plan, error) {
	var deployment struct {
		Spec struct {
			Replicas *int32                    `json:"replicas"`
			Strategy appsv1.DeploymentStrategy `json:"strategy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &deployment); err != nil {
		return Plan{}, fmt.Errorf("reading the Deployment: %w", err)
	}
	plan := Plan{Replicas: 1}
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
	if plan.Surge, err = scaled(rolling.MaxSurge, plan.Replicas, true); err != nil {
		return Plan{}, fmt.Errorf("spec.strategy.rollingUpdate.maxSurge: %w", err)
	}
	if plan.Unavailable, err = scaled(rolling.MaxUnavailable, plan.Replicas, false); err != nil {
		return Plan{}, fmt.Errorf("spec.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	if plan.Surge == 0 && plan.Unavailable == 0 {
		plan.Unavailable = 1 // as the Deployment controller has it
	}
	return plan, nil
}

func scaled(value *intstr.IntOrString, of int64, up bool) (int64, error) {
	quarter := intstr.FromString("25%")
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, quarter), int(of), up)
	return int64(n), err
}
