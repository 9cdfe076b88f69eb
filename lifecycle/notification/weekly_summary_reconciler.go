// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/apply"
)

// weekCheckInterval bounds the time between two checks, in machine time.
const weekCheckInterval = time.Hour

// WeeklySummaryReconciler records the weekly summary of each department.
type WeeklySummaryReconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Notices records Notices, and reads UsageRecords, which are not cached.
	Notices Recorder
	// Clock is policy time.
	Clock policytime.Clock
}

// SetupWithManager adds r to the manager.
func (r *WeeklySummaryReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("weekly-summary").
		For(&v1alpha1.Department{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.timelineSource()).
		Complete(apply.RequeueOnConflict(r))
}

// timelineSource enqueues every department when policy time steps or changes its pace.
func (r *WeeklySummaryReconciler) timelineSource() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		policytime.NotifySteps(ctx, r.Clock, func() {
			var departments v1alpha1.DepartmentList
			if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "Failed to list departments")
			}
			for _, request := range inventory.Requests(&departments) {
				queue.Add(request)
			}
		})
		return nil
	})
}

// Reconcile records the last week of one department, once.
func (r *WeeklySummaryReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, request.NamespacedName, &department); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	to := DepartmentContacts(&department)
	if len(to) == 0 || !department.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	w, err := reportingWeekOf(department.Spec.Notices, now)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("department %s: %w", department.Name, err))
	}
	requeue := reconcile.Result{RequeueAfter: max(time.Second, min(weekCheckInterval, r.Clock.RealUntil(w.nextDueAt)))}
	// A department has no summary of weeks before its creation.
	if !r.Clock.FromReal(department.CreationTimestamp.Time).Before(w.to) {
		return requeue, nil
	}
	a := Announcement{
		Kind: v1alpha1.NoticeWeeklySummary, Threshold: string(department.UID) + " " + w.firstDay.String(), DueAt: w.dueAt,
		Subject: v1alpha1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Department", Name: department.Name, UID: department.UID,
		},
	}
	if to, err = r.Notices.missingRecipients(ctx, a, to); err != nil || len(to) == 0 {
		return requeue, err
	}
	if a.Inputs, err = r.summaryInputs(ctx, &department, w, now); err != nil {
		return requeue, err
	}
	_, err = r.Notices.Record(ctx, a, to)
	return requeue, err
}

// summaryInputs returns the inputs of a summary: stopped workloads and undecided extensions in the week, the use of the
// projects in the month, and their next steps.
func (r *WeeklySummaryReconciler) summaryInputs(
	ctx context.Context, department *v1alpha1.Department, w reportingWeek, now time.Time,
) (map[string]string, error) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return nil, fmt.Errorf("list projects of department %s: %w", department.Name, err)
	}
	var rows []projectLine
	var stopped, idle, pending int
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
			return nil, fmt.Errorf("list clocks of project %s: %w", project.Name, err)
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
		pending += open
		rows = append(rows, l)
	}
	slices.SortFunc(rows, func(a, b projectLine) int {
		return cmp.Or(
			cmp.Compare(b.milliHours, a.milliHours), cmp.Compare(b.Stopped, a.Stopped), compareExpiry(a.ExpiresAt, b.ExpiresAt),
			strings.Compare(a.Project, b.Project),
		)
	})
	var weeks []mail.ProjectWeek
	for _, l := range rows[:min(len(rows), maxProjectRows)] {
		weeks = append(weeks, l.ProjectWeek)
	}
	inputs := m.toInputs(used, before)
	maps.Copy(inputs, map[string]string{
		mail.InputDepartment: department.Name,
		mail.InputFrom:       w.from.UTC().Format(time.RFC3339), mail.InputTo: w.to.UTC().Format(time.RFC3339),
		mail.InputStopped: strconv.Itoa(stopped), mail.InputStoppedIdle: strconv.Itoa(idle), mail.InputPendingExtensions: strconv.Itoa(pending),
		mail.InputProjects: mail.FormatProjectWeeks(weeks),
	})
	maps.Copy(inputs, projectStepInputs(projects.Items, now))
	maps.Copy(inputs, awaitingInputs(projects.Items))
	return inputs, nil
}

// projectStepInputs returns the inputs with the next steps of projects, the earliest first; none if no project has one.
func projectStepInputs(projects []v1alpha1.Project, now time.Time) map[string]string {
	var ahead []*v1alpha1.Project
	expires := false
	for i := range projects {
		next := projects[i].Status.Next
		if expires = expires || next != nil; next != nil && !next.At.After(now.Add(mail.StepHorizon)) {
			ahead = append(ahead, &projects[i])
		}
	}
	if !expires {
		return nil
	}
	slices.SortFunc(ahead, func(a, b *v1alpha1.Project) int {
		return cmp.Or(a.Status.Next.At.Compare(b.Status.Next.At.Time), strings.Compare(a.Name, b.Name))
	})
	var steps []mail.ProjectStep
	for _, p := range ahead[:min(len(ahead), mail.MaxProjectSteps)] {
		var owners []v1alpha1.Contact
		for _, owner := range p.Spec.Owners {
			owners = append(owners, owner.Contact)
		}
		step := mail.ProjectStep{
			Project: p.Name, Phase: p.Status.Next.Phase, At: p.Status.Next.At.UTC().Format(time.RFC3339), Closed: p.Status.ClosedAt != nil,
			Owners: mail.FormatContacts(owners),
		}
		if approval := deletionApproval(p); approval != nil {
			step.ApprovedBy = approval.ApprovedBy
		}
		steps = append(steps, step)
	}
	return map[string]string{mail.InputSteps: mail.FormatProjectSteps(steps), mail.InputStepCount: strconv.Itoa(len(ahead))}
}

// awaitingInputs returns the inputs with the projects whose deletion awaits its approval, the one that waits longest
// first; none if no project does.
func awaitingInputs(projects []v1alpha1.Project) map[string]string {
	var awaiting []mail.ProjectStep
	for i := range projects {
		p := &projects[i]
		if p.Status.Phase != v1alpha1.ProjectPendingDeletion || deletionApproval(p) != nil || !p.DeletionTimestamp.IsZero() {
			continue
		}
		step := mail.ProjectStep{Project: p.Name, Phase: v1alpha1.ProjectDeleting, Closed: p.Status.ClosedAt != nil}
		if since := p.Status.PhaseSince; since != nil {
			step.At = since.UTC().Format(time.RFC3339)
		}
		awaiting = append(awaiting, step)
	}
	if len(awaiting) == 0 {
		return nil
	}
	slices.SortFunc(awaiting, func(a, b mail.ProjectStep) int {
		return cmp.Or(strings.Compare(a.At, b.At), strings.Compare(a.Project, b.Project))
	})
	return map[string]string{
		mail.InputAwaitingCount: strconv.Itoa(len(awaiting)),
		mail.InputAwaiting:      mail.FormatProjectSteps(awaiting[:min(len(awaiting), mail.MaxProjectSteps)]),
	}
}

// deletionApproval returns the approval of a project's deletion; nil for none.
func deletionApproval(project *v1alpha1.Project) *v1alpha1.ProjectDeletionApproval {
	if project.Status.Expiry == nil {
		return nil
	}
	return project.Status.Expiry.Deletion
}

// projectLine is a project's row with its use in thousandths of a GPU hour.
type projectLine struct {
	mail.ProjectWeek
	milliHours int64
}

// maxProjectRows bounds the recorded projects; mails show fewer.
const maxProjectRows = 200

// countOpenExtensions counts the undecided extensions of a project.
func (r *WeeklySummaryReconciler) countOpenExtensions(ctx context.Context, project *v1alpha1.Project) (open int, err error) {
	var extensions v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &extensions, client.InNamespace(project.NamespaceName()), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list extensions of project %s: %w", project.Name, err)
	}
	for _, e := range extensions.Items {
		if e.Status.Decision == "" && e.Spec.Action != v1alpha1.ActionDelete { // those are listed with the projects
			open++
		}
	}
	return open, nil
}

// compareExpiry orders expiry times; empty ones come last.
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
