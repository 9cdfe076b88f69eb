// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// tenant is the project and the department of a namespace.
type tenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
	zone       *time.Location
}

// lookUpTenant returns the tenant of a namespace, or nil if the namespace has no project. The work of
// a project that is suspended or being deleted is stopped even if its department is gone.
func (r *Reconciler) lookUpTenant(ctx context.Context, namespace string) (*tenant, error) {
	project, department, err := inventory.TenantForNamespace(ctx, r.Client, namespace)
	if apierrors.IsNotFound(err) {
		if project, err = inventory.ProjectForNamespace(ctx, r.Client, namespace); err != nil || project == nil {
			return nil, err
		}
		if project.StopsWorkloads() == "" {
			return nil, fmt.Errorf("department %s of project %s does not exist", project.Spec.Department, project.Name)
		}
		department = &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: project.Spec.Department}}
	}
	if project == nil || err != nil {
		return nil, err
	}
	return &tenant{project: project, department: department, zone: r.timeZones.load(department.Spec.Notices.TimeZone)}, nil
}

// end returns why all workloads of the project are stopped: ProjectSuspended or ProjectDeleted, or ""
// if they are not.
func (t *tenant) end() v1alpha1.EndReason { return t.project.StopsWorkloads() }

// isExempt reports whether the project is exempt or on hold. Then no workload is stopped.
func (t *tenant) isExempt(now time.Time) bool {
	return t.project.Spec.Exempt.IsInForce(now, t.zone) || t.project.Spec.Hold.IsInForce(now, t.zone)
}

// exemptUntil returns when the first of exemption and hold ends; zero for never.
func (t *tenant) exemptUntil(now time.Time) (until time.Time) {
	for _, exception := range []*v1alpha1.Exception{t.project.Spec.Exempt, t.project.Spec.Hold} {
		if !exception.IsInForce(now, t.zone) || exception.Until == nil {
			continue
		}
		if end := exception.Until.End(t.zone); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

// effectiveLimits returns the tightest limits of the pods' workload types, and that type.
// Without pods it returns those of the recorded type.
func (t *tenant) effectiveLimits(
	now time.Time, pods []*podcache.Pod, recorded v1alpha1.WorkloadType,
) (timelimit.EffectiveLimits, v1alpha1.WorkloadType) {
	limitsOf := func(workloadType v1alpha1.WorkloadType) (v1alpha1.Limits, v1alpha1.WorkloadType) {
		if workloadType == "" {
			workloadType = v1alpha1.WorkloadTrain // the default of admission
		}
		return v1alpha1.TightestLimits(workloadType, t.project.Spec.Workloads, t.department.Spec.Workloads), workloadType
	}
	limits, workloadType := limitsOf(recorded)
	for i, pod := range pods {
		if podLimits, podType := limitsOf(pod.WorkloadType); i == 0 || isShorter(podLimits.MaxRuntime, limits.MaxRuntime) {
			limits, workloadType = podLimits, podType
		}
	}
	setByPods := recorded != "" && recorded != workloadType
	for _, pod := range pods {
		if isShorter(pod.MaxRuntime, limits.MaxRuntime) {
			limits.MaxRuntime, setByPods = pod.MaxRuntime, true
		}
	}
	return timelimit.EffectiveLimits{Limits: limits, SetByPods: setByPods, Leads: t.leads(), Exempt: t.isExempt(now)}, workloadType
}

// isShorter reports whether a is shorter than b. The zero duration means unlimited.
func isShorter(a, b period.Duration) bool {
	return !a.IsZero() && (b.IsZero() || a.Length() < b.Length())
}

// defaultLeads are the leads of a department without its own, as in the API's schema.
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

// timeZoneCache caches time zones. time.LoadLocation reads a file on each call.
type timeZoneCache struct{ locations sync.Map }

// load returns a time zone, or UTC if the name is unknown. Admission rejects unknown names,
// but an older object can hold one.
func (z *timeZoneCache) load(name string) *time.Location {
	if zone, ok := z.locations.Load(name); ok {
		return zone.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	z.locations.Store(name, zone)
	return zone
}
