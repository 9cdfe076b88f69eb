// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/apply"
)

// QuotaThresholdReconciler reports projects that have nearly used their quota: as a condition, and
// with a Notice a day while work is pending for it.
type QuotaThresholdReconciler struct {
	// Client reads Projects and Departments from the cache, and writes the condition.
	Client client.Client
	// Notices records Notices.
	Notices Recorder
	// Clock is policy time.
	Clock policytime.Clock
}

// SetupWithManager adds r to the manager.
func (r *QuotaThresholdReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("quota-threshold").
		For(&v1alpha1.Project{}).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile updates the condition of one project and records the Notice.
func (r *QuotaThresholdReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, request.NamespacedName, &project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaNearlyUsed)
	wasNearlyUsed := before != nil && before.Status == metav1.ConditionTrue
	full := poolsNearLimit(&project.Status, wasNearlyUsed)
	if !project.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if pool, found := poolWithPendingWork(&project.Status, full); found {
		if err := r.recordNotice(ctx, &project, pool); err != nil {
			return reconcile.Result{}, err
		}
	}
	if isNearlyUsed := len(full) > 0; isNearlyUsed == wasNearlyUsed {
		return reconcile.Result{}, nil // unchanged, or never near the limit
	}
	fields := func(conditions []metav1.Condition) *ac.ProjectApplyConfiguration {
		own := apply.Conditions(conditions, v1alpha1.ConditionQuotaNearlyUsed)
		return ac.Project(project.Name).WithStatus(ac.ProjectStatus().WithConditions(own...))
	}
	cached := project.Status.Conditions
	conditions := slices.Clone(cached)
	meta.SetStatusCondition(&conditions, nearlyUsedCondition(full, project.Generation, metav1.NewTime(policytime.MachineNow())))
	if err := apply.Status(ctx, r.Client, quotaThresholdFieldManager, fields(cached), fields(conditions)); err != nil {
		return reconcile.Result{}, fmt.Errorf("apply status of project %s: %w", project.Name, err)
	}
	return reconcile.Result{}, nil
}

// quotaThresholdFieldManager owns the condition QuotaNearlyUsed.
const quotaThresholdFieldManager = v1alpha1.FieldManagerLifecycle + "-quota-threshold"

// recordNotice records the Notice for the project's recipients, once a day in the department's time
// zone.
func (r *QuotaThresholdReconciler) recordNotice(ctx context.Context, project *v1alpha1.Project, pool poolUse) error {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, client.ObjectKey{Name: project.Spec.Department}, &department); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // a project without one has nothing
		}
		return fmt.Errorf("get department %s: %w", project.Spec.Department, err)
	}
	now := r.Clock.Now()
	zone, err := time.LoadLocation(department.Spec.Notices.TimeZone)
	if err != nil {
		zone = time.UTC // as in the mail
	}
	a := Announcement{
		Kind: v1alpha1.NoticeQuotaThreshold, Threshold: string(project.UID) + " " + period.DateOf(now, zone).String(), DueAt: now,
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: project.Name, UID: project.UID},
		Inputs: map[string]string{
			mail.InputProject: project.Name, mail.InputDepartment: department.Name, mail.InputNodePool: pool.pool,
			mail.InputPercent: strconv.FormatInt(pool.percent, 10), mail.InputAllocated: pool.used, mail.InputLimit: pool.limit,
		},
	}
	to, err := r.Notices.missingRecipients(ctx, a, ProjectRecipients(project, &department))
	if err != nil || len(to) == 0 {
		return err
	}
	_, err = r.Notices.Record(ctx, a, to)
	return err
}

// poolWithPendingWork returns the fullest of the nearly used pools for which work is pending for
// lack of quota. Without such work there is nothing to do.
func poolWithPendingWork(status *v1alpha1.ProjectStatus, full []poolUse) (poolUse, bool) {
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionPending) {
		return poolUse{}, false
	}
	at := slices.IndexFunc(full, func(use poolUse) bool { return use.pending })
	if at < 0 {
		return poolUse{}, false
	}
	return full[at], true
}

// Percentages of a limit at which the condition becomes true, and below which it becomes false.
const (
	warnPercent  = 90
	resetPercent = 80
)

// poolUse is the use of a nearly used node pool.
type poolUse struct {
	pool        string
	percent     int64
	used, limit string
	// pending reports whether work is pending for the pool.
	pending bool
}

// poolsNearLimit returns the nearly used pools, the fullest first, with hysteresis if the condition
// was true.
func poolsNearLimit(status *v1alpha1.ProjectStatus, was bool) (full []poolUse) {
	threshold := int64(warnPercent)
	if was {
		threshold = resetPercent
	}
	for _, pool := range status.NodePools {
		used := pool.Allocated.DeepCopy()
		used.Add(pool.Unscheduled) // the limit counts both
		limit := pool.Limit.MilliValue()
		if limit <= 0 {
			continue
		}
		if percent := used.MilliValue() * 100 / limit; percent >= threshold {
			full = append(full, poolUse{
				pool: pool.Name, percent: percent, used: used.String(), limit: pool.Limit.String(),
				pending: pool.Pending.Sign() > 0,
			})
		}
	}
	slices.SortStableFunc(full, func(a, b poolUse) int { return cmp.Compare(b.percent, a.percent) })
	return full
}

// nearlyUsedCondition returns the condition.
func nearlyUsedCondition(full []poolUse, generation int64, now metav1.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionQuotaNearlyUsed, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonWithinLimit, Message: "each node pool has room",
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if len(full) == 0 {
		return c
	}
	var pools []string
	for _, u := range full {
		pools = append(pools, fmt.Sprintf("%s of %s GPUs in %s", u.used, u.limit, u.pool))
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNearlyUsed
	c.Message = "in use: " + strings.Join(pools, ", ")
	return c
}
