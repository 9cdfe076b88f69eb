// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Eviction configures how single pods are evicted: those over their share, and those that give way to a pod
// with a guaranteed quota.
type Eviction struct {
	// NoticePeriod is the time from the announcement to the eviction, 5s to 30m. Default 5m.
	NoticePeriod metav1.Duration `json:"noticePeriod,omitempty"`
	// BudgetPeriod is the time after that for which a PodDisruptionBudget holds the pod, 5s to 30m. Default 5m.
	BudgetPeriod metav1.Duration `json:"budgetPeriod,omitempty"`
}

// The limits of both periods, and their default. The MIG planner keeps the room of an announced eviction for two hours.
const (
	defaultEvictionPeriod = 5 * time.Minute
	minEvictionPeriod     = 5 * time.Second
	maxEvictionPeriod     = 30 * time.Minute
)

func (e *Eviction) setDefaults() {
	for _, period := range []*metav1.Duration{&e.NoticePeriod, &e.BudgetPeriod} {
		if period.Duration == 0 {
			period.Duration = defaultEvictionPeriod
		}
	}
}

func (e *Eviction) validate(path *field.Path) (errs field.ErrorList) {
	for name, period := range map[string]metav1.Duration{"noticePeriod": e.NoticePeriod, "budgetPeriod": e.BudgetPeriod} {
		if d := period.Duration; d < minEvictionPeriod || d > maxEvictionPeriod {
			errs = append(errs, field.Invalid(path.Child(name), d.String(), "must be 5s to 30m"))
		}
	}
	return errs
}
