// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/gpupods"
)

// terms are what holds for a workload of these pods, or, where there are none
// now, of the type that was recorded. It returns that type, too.
func (t *tenant) terms(now time.Time, pods []*gpupods.Pod, recorded v1alpha1.WorkloadType) (ending.Terms, v1alpha1.WorkloadType) {
	kind := recorded
	if kind == "" {
		kind = v1alpha1.WorkloadTrain
	}
	limits := v1alpha1.LimitsOf(kind, t.project.Spec.Workloads, t.department.Spec.Workloads)
	for i, pod := range pods {
		of := pod.WorkloadType
		if of == "" {
			of = v1alpha1.WorkloadTrain // as admission says where nobody does
		}
		its := v1alpha1.LimitsOf(of, t.project.Spec.Workloads, t.department.Spec.Workloads)
		if i == 0 || tighter(its.MaxRuntime, limits.MaxRuntime) {
			kind, limits = of, its
		}
	}
	for _, pod := range pods {
		if tighter(pod.MaxRuntime, limits.MaxRuntime) {
			limits.MaxRuntime = pod.MaxRuntime
		}
	}
	return ending.Terms{Limits: limits, Leads: t.leads(), Spared: t.spared(now)}, kind
}

// tighter tells whether a is shorter than b, where "not set" is without end.
func tighter(a, b period.Duration) bool {
	return !a.IsZero() && (b.IsZero() || a.Length() < b.Length())
}

// defaultLeads are those where a department has none, as its schema says.
var defaultLeads = []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute}

func (t *tenant) leads() []time.Duration {
	var leads []time.Duration
	for _, lead := range t.department.Spec.Notices.WorkloadEnd {
		if lead.Length() > 0 {
			leads = append(leads, lead.Length())
		}
	}
	if len(leads) == 0 {
		return defaultLeads
	}
	return leads
}
