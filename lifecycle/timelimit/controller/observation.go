// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// tenant is whose a namespace is.
type tenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
	zone       *time.Location
}

// lookUpTenant is whose a namespace is; nil where it is nobody's.
func (r *Reconciler) lookUpTenant(ctx context.Context, namespace string) (*tenant, error) {
	project, department, err := inventory.TenantForNamespace(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	return &tenant{project: project, department: department, zone: r.timeZones.load(department.Spec.Notices.TimeZone)}, nil
}

// isExempt tells whether the project is exempt or held on that day, and so none of
// its workloads is ended.
func (t *tenant) isExempt(now time.Time) bool {
	return isInForce(t.project.Spec.Exempt, now, t.zone) || isInForce(t.project.Spec.Hold, now, t.zone)
}

// exemptUntil is when that may end; zero for never.
func (t *tenant) exemptUntil(now time.Time) (until time.Time) {
	for _, exception := range []*v1alpha1.Exception{t.project.Spec.Exempt, t.project.Spec.Hold} {
		if !isInForce(exception, now, t.zone) || exception.Until == nil {
			continue
		}
		if end := exception.Until.End(t.zone); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

func isInForce(exception *v1alpha1.Exception, now time.Time, zone *time.Location) bool {
	return exception != nil && (exception.Until == nil || now.Before(exception.Until.End(zone)))
}

// effectiveLimits are what holds for a workload of these pods, or, where there are none
// now, of the type that was recorded. It returns that type, too.
func (t *tenant) effectiveLimits(now time.Time, pods []*podcache.Pod, recorded v1alpha1.WorkloadType) (timelimit.EffectiveLimits, v1alpha1.WorkloadType) {
	kind := recorded
	if kind == "" {
		kind = v1alpha1.WorkloadTrain
	}
	limits := v1alpha1.EffectiveLimits(kind, t.project.Spec.Workloads, t.department.Spec.Workloads)
	for i, pod := range pods {
		of := pod.WorkloadType
		if of == "" {
			of = v1alpha1.WorkloadTrain // as admission says where nobody does
		}
		its := v1alpha1.EffectiveLimits(of, t.project.Spec.Workloads, t.department.Spec.Workloads)
		if i == 0 || isShorter(its.MaxRuntime, limits.MaxRuntime) {
			kind, limits = of, its
		}
	}
	for _, pod := range pods {
		if isShorter(pod.MaxRuntime, limits.MaxRuntime) {
			limits.MaxRuntime = pod.MaxRuntime
		}
	}
	return timelimit.EffectiveLimits{Limits: limits, Leads: t.leads(), Exempt: t.isExempt(now)}, kind
}

// isShorter tells whether a is shorter than b, where "not set" is without end.
func isShorter(a, b period.Duration) bool {
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

// sampleMaxAge is how old a node's sample may be, in machine time, to say something of
// the use of its GPUs. Agents write one every minute at least.
const sampleMaxAge = 3 * time.Minute

// observeUtilization is how the GPUs of running pods are used: the latest use of any of them, up
// to the oldest of their nodes' samples. Where one node says nothing, or cannot
// tell, nothing is known.
func (r *Reconciler) observeUtilization(ctx context.Context, pods []*podcache.Pod) (timelimit.Utilization, error) {
	use := timelimit.Utilization{Known: len(pods) > 0}
	for _, pod := range pods {
		var node v1alpha1.GPUNode
		err := r.Client.Get(ctx, types.NamespacedName{Name: pod.Node}, &node)
		if client.IgnoreNotFound(err) != nil {
			return timelimit.Utilization{}, err
		}
		// A node that is not there has no sample either.
		active, sampled, known := podUtilization(pod, &node, policytime.MachineNow())
		if !known {
			return timelimit.Utilization{}, nil
		}
		if at := r.toPolicyTime(active); at.After(use.LastActive) {
			use.LastActive = at
		}
		if at := r.Clock.FromReal(sampled); use.SampledAt.IsZero() || at.Before(use.SampledAt) {
			use.SampledAt = at
		}
	}
	// A node's own clock may be ahead: nothing is idle for longer than until now.
	if now := r.Clock.Now(); use.SampledAt.After(now) {
		use.SampledAt = now
	}
	if use.LastActive.After(use.SampledAt) {
		use.LastActive = use.SampledAt
	}
	return use, nil
}

// podUtilization is what a node's latest sample says of a pod, in machine time. A pod
// that has not computed since it began was last active when it began.
func podUtilization(pod *podcache.Pod, node *v1alpha1.GPUNode, now time.Time) (active, sampled time.Time, known bool) {
	s := &node.Status
	if s.SampledAt == nil || now.Sub(s.SampledAt.Time).Abs() > sampleMaxAge || s.UtilizationSource == v1alpha1.UtilizationUnavailable || s.UtilizationSource == "" {
		return time.Time{}, time.Time{}, false
	}
	for i := range s.Pods {
		if s.Pods[i].UID != pod.UID {
			continue
		}
		active = pod.EffectiveStart()
		if last := s.Pods[i].LastActive; last != nil && last.After(active) {
			active = last.Time
		}
		return active, s.SampledAt.Time, true
	}
	return time.Time{}, time.Time{}, false
}

// listGrantedExtensions are the approved extensions of the workload that were not carried out
// yet; they go into its terms.
func (r *Reconciler) listGrantedExtensions(ctx context.Context, w *workload) ([]*v1alpha1.Extension, error) {
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for extensions in %s: %w", w.clock.Namespace, err)
	}
	var granted []*v1alpha1.Extension
	for i := range all.Items {
		e := &all.Items[i]
		if !Extends(e, w.clock) || e.Status.Decision != v1alpha1.ExtensionApproved || meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionApplied) {
			continue
		}
		granted = append(granted, e)
		w.limits.GrantedExtensions = append(w.limits.GrantedExtensions, v1alpha1.ClockExtension{
			Name: e.Name, By: *e.Spec.By, SelfService: e.Status.DecidedBy == "",
		})
	}
	return granted, nil
}

// Extends tells whether an extension asks for more time for the clock's workload.
func Extends(e *v1alpha1.Extension, clock *v1alpha1.WorkloadClock) bool {
	target, root := e.Spec.Target, clock.Spec.Root
	return e.Spec.Action == v1alpha1.ActionExtend && e.Spec.By != nil &&
		target.Name == root.Name && target.Kind == root.Kind && apiGroupOf(target.APIVersion) == apiGroupOf(root.APIVersion)
}

func apiGroupOf(apiVersion string) string { return schema.FromAPIVersionAndKind(apiVersion, "").Group }

// reasonExtended is the reason of the condition Applied.
const reasonExtended = "Extended"

// markExtensionsApplied says on the extensions that they were carried out, once the clock
// has them.
func (r *Reconciler) markExtensionsApplied(ctx context.Context, w *workload, d timelimit.Decision) error {
	for _, e := range w.grantedExtensions {
		has := slices.ContainsFunc(d.Status.Extensions, func(c v1alpha1.ClockExtension) bool { return c.Name == e.Name })
		if !has {
			continue
		}
		next := e.DeepCopy()
		message := "the workload has that much more time"
		if d.Status.Deadline != nil {
			next.Status.NewEnd = &d.Status.Deadline.At
			message = "the workload ends at " + d.Status.Deadline.At.In(w.zone).Format(localTimeFormat)
		}
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: reasonExtended, Message: message,
		})
		if err := r.Client.Status().Update(ctx, next); err != nil {
			return fmt.Errorf("marking extension %s/%s as applied: %w", e.Namespace, e.Name, err)
		}
	}
	return nil
}

// timeZoneCache remembers the time zones of departments: the library reads them from disk
// each time that it is asked.
type timeZoneCache struct{ locations sync.Map }

// load is the zone of that name, and UTC where there is none: admission checks it; an
// older object may have another.
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
