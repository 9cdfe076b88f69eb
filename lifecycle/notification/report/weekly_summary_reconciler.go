// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package weekly records, for the contacts of each department, what its week was.
//
// Enters: Departments, and what their Projects, WorkloadClocks, Extensions and
// UsageRecords say.
// Leaves: one Notice of kind WeeklySummary a week and contact, due at the first digest
// of the week, or at eight on Monday where the department has no digest.
//
// It never looks further back than the week that ended: weeks in which lifecycle was
// away are not made up for.
package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/conflict"
)

// weekCheckInterval is how often it is looked whether a week is over, in machine time: policy time
// may be stepped.
const weekCheckInterval = time.Hour

// WeeklySummaryReconciler looks at each department.
type WeeklySummaryReconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Notices records what people are told, and reads UsageRecords, which are not cached.
	Notices notification.Recorder
	// Clock is policy time.
	Clock policytime.Clock
}

// SetupWithManager makes the manager run r.
func (r *WeeklySummaryReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("weekly-summary").
		For(&v1alpha1.Department{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(conflict.WithRetry(r))
}

// Reconcile records the last week of one department, if that was not done.
func (r *WeeklySummaryReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, request.NamespacedName, &department); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	to := notification.DepartmentContacts(&department)
	if len(to) == 0 || !department.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	w, err := reportingWeekOf(department.Spec.Notices, now)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("department %s: %w", department.Name, err))
	}
	again := reconcile.Result{RequeueAfter: max(time.Second, min(weekCheckInterval, r.Clock.RealUntil(w.nextDueAt)))}
	// A department has no week before its own first.
	if !r.Clock.FromReal(department.CreationTimestamp.Time).Before(w.to) {
		return again, nil
	}
	a := notification.Announcement{
		Kind: v1alpha1.NoticeWeeklySummary, Threshold: string(department.UID) + " " + w.firstDay.String(), DueAt: w.dueAt,
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Department", Name: department.Name, UID: department.UID},
	}
	if to, err = r.missingRecipients(ctx, a, to); err != nil || len(to) == 0 {
		return again, err
	}
	if a.Inputs, err = r.summaryInputs(ctx, &department, w, now); err != nil {
		return again, err
	}
	_, err = r.Notices.Record(ctx, a, to)
	return again, err
}

// missingRecipients are the recipients for whom it is not recorded, as far as the cache knows.
func (r *WeeklySummaryReconciler) missingRecipients(ctx context.Context, a notification.Announcement, to []v1alpha1.NoticeRecipient) (missing []v1alpha1.NoticeRecipient, err error) {
	for _, recipient := range to {
		var n v1alpha1.Notice
		err := r.Client.Get(ctx, client.ObjectKey{Name: a.NoticeName(recipient)}, &n)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("looking for the summary of department %s: %w", a.Subject.Name, err)
		case err != nil:
			missing = append(missing, recipient)
		}
	}
	return missing, nil
}

// summaryInputs is what a department's week was: which of its workloads were stopped, what waits
// for a decision, which projects end; and how much its projects used in the month.
func (r *WeeklySummaryReconciler) summaryInputs(ctx context.Context, department *v1alpha1.Department, w reportingWeek, now time.Time) (map[string]string, error) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return nil, fmt.Errorf("listing the projects of department %s: %w", department.Name, err)
	}
	var rows []projectLine
	var stopped, idle, waiting int
	var used, before int64
	m := reportingMonthOf(w, now, w.zone)
	for i := range projects.Items {
		project := &projects.Items[i]
		l := projectLine{ProjectWeek: mail.ProjectWeek{Project: project.Name}}
		var err error
		if l.milliHours, err = r.gpuMilliHours(ctx, project.Name, m.name); err != nil {
			return nil, err
		}
		last, err := r.gpuMilliHours(ctx, project.Name, m.previous)
		if err != nil {
			return nil, err
		}
		l.GPUHours = formatHours(l.milliHours)
		used, before = used+l.milliHours, before+last
		if end := project.Status.ExpiresAt; end != nil {
			l.ExpiresAt = end.UTC().Format(time.RFC3339)
		}
		var clocks v1alpha1.WorkloadClockList
		if err := r.Client.List(ctx, &clocks, client.InNamespace(project.NamespaceName()), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the clocks of project %s: %w", project.Name, err)
		}
		for _, c := range clocks.Items {
			stop := c.Status.Stopped
			if stop == nil || stop.At.Time.Before(w.from) || !stop.At.Time.Before(w.to) {
				continue
			}
			l.Stopped++
			if stop.Reason == v1alpha1.EndIdle {
				idle++
			}
		}
		stopped += l.Stopped
		open, err := r.countOpenExtensions(ctx, project)
		if err != nil {
			return nil, err
		}
		waiting += open
		rows = append(rows, l)
	}
	slices.SortFunc(rows, func(a, b projectLine) int {
		return cmp.Or(cmp.Compare(b.milliHours, a.milliHours), cmp.Compare(b.Stopped, a.Stopped), compareExpiry(a.ExpiresAt, b.ExpiresAt), strings.Compare(a.Project, b.Project))
	})
	var weeks []mail.ProjectWeek
	for _, l := range rows[:min(len(rows), maxProjectRows)] {
		weeks = append(weeks, l.ProjectWeek)
	}
	inputs := m.toInputs(used, before)
	maps.Copy(inputs, map[string]string{
		mail.InputDepartment: department.Name,
		mail.InputFrom:       w.from.UTC().Format(time.RFC3339), mail.InputTo: w.to.UTC().Format(time.RFC3339),
		mail.InputStopped: strconv.Itoa(stopped), mail.InputStoppedIdle: strconv.Itoa(idle), mail.InputPendingExtensions: strconv.Itoa(waiting),
		mail.InputProjects: mail.FormatProjectWeeks(weeks),
	})
	return inputs, nil
}

// projectLine is a project's line, and what it used, in thousandths of a GPU hour.
type projectLine struct {
	mail.ProjectWeek
	milliHours int64
}

// maxProjectRows is how many projects are recorded: more are in no mail.
const maxProjectRows = 200

// countOpenExtensions is how many extensions of a project wait for somebody to decide.
func (r *WeeklySummaryReconciler) countOpenExtensions(ctx context.Context, project *v1alpha1.Project) (open int, err error) {
	var extensions v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &extensions, client.InNamespace(project.NamespaceName()), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the extensions of project %s: %w", project.Name, err)
	}
	for _, e := range extensions.Items {
		if e.Status.Decision == "" {
			open++
		}
	}
	return open, nil
}

// compareExpiry orders by ends, of which each may be none.
func compareExpiry(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	return strings.Compare(a, b)
}
