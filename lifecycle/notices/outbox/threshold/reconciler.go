// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package threshold

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/notices/message"
)

// Reconciler looks at each project.
type Reconciler struct {
	// Client reads Projects and Departments from the cache, and writes the condition.
	Client client.Client
	// Notices records what people are told.
	Notices notices.Recorder
	// Clock is policy time.
	Clock clock.Clock
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("quota-threshold").
		For(&v1alpha1.Project{}).
		Complete(conflict.Retried(r))
}

// Reconcile looks at one project.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, request.NamespacedName, &project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaNearlyUsed)
	was := before != nil && before.Status == metav1.ConditionTrue
	full := level(&project.Status, was)
	if is := len(full) > 0; is == was || !project.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // and before the first time there is nothing to say
	}
	if len(full) > 0 {
		// The Notice comes first: after a crash in between it is recorded again, under
		// the same name.
		if err := r.tell(ctx, &project, before, full[0]); err != nil {
			return reconcile.Result{}, err
		}
	}
	meta.SetStatusCondition(&project.Status.Conditions, condition(full, project.Generation, metav1.NewTime(clock.MachineNow())))
	if err := r.Client.Status().Update(ctx, &project); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of project %s: %w", project.Name, err)
	}
	return reconcile.Result{}, nil
}

// tell records it for the project's people. Since when there was room tells this time
// from others.
func (r *Reconciler) tell(ctx context.Context, project *v1alpha1.Project, before *metav1.Condition, fullest use) error {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, client.ObjectKey{Name: project.Spec.Department}, &department); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // a project without one has nothing
		}
		return fmt.Errorf("reading department %s: %w", project.Spec.Department, err)
	}
	since := "first"
	if before != nil {
		since = strconv.FormatInt(before.LastTransitionTime.Unix(), 10)
	}
	_, err := r.Notices.Record(ctx, notices.Announcement{
		Kind: v1alpha1.NoticeQuotaThreshold, Threshold: string(project.UID) + " " + since, DueAt: r.Clock.Now(),
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: project.Name, UID: project.UID},
		Inputs: map[string]string{
			message.InputProject: project.Name, message.InputDepartment: department.Name, message.InputNodePool: fullest.pool,
			message.InputPercent: strconv.FormatInt(fullest.percent, 10), message.InputAllocated: fullest.allocated, message.InputLimit: fullest.limit,
		},
	}, notices.Recipients(project, &department))
	return err
}
