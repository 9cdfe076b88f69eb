// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyaudit audits the pods and workloads of all projects under the policies in force.
//
// [Auditor] runs on a schedule in policy time, and after the policies changed. It reads the objects page by page and pauses
// between pages, so that it uses at most half of a processor. It writes the figures to the status of the policies, the record
// of the audit to that of the AdmissionParameters, and, if their kind is installed, a Report of OpenReports for each namespace
// with findings. It writes what changed, and besides the record nothing at rest. An audit that is interrupted writes nothing, or
// a part of what the next one writes.
//
// The package never changes the objects that it audits.
package policyaudit

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
)

// Auditor runs the audits of the leader.
type Auditor struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads the audited objects from the API server.
	Live client.Reader
	// Policies are the policies in force.
	Policies *engine.Engine
	// Clock is policy time.
	Clock policytime.Clock
	// Config has the schedule.
	Config config.Audit

	evaluator decision.Evaluator
	trigger   trigger
	// last is the record that this process wrote last: the cache may not have it yet.
	last *v1alpha1.AuditRecord
}

const (
	// checkInterval is the interval of checks whether an audit is due, in machine time: policy time can step.
	checkInterval = 5 * time.Second
	// failurePause is the time after a failed audit.
	failurePause = 10 * time.Minute
	// minPagePause is the shortest pause after a page of objects.
	minPagePause = 20 * time.Millisecond
)

// Start runs audits until ctx ends. It implements manager.Runnable.
func (a *Auditor) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.runIfDue(ctx); err != nil && ctx.Err() == nil {
			a.trigger.pausedUntil = policytime.MachineNow().Add(failurePause)
			log.FromContext(ctx).Error(err, "Failed to audit the objects of projects", "retryAfter", failurePause)
		}
	}, checkInterval)
	return nil
}

// runIfDue runs an audit if one is due.
func (a *Auditor) runIfDue(ctx context.Context) error {
	set, err := a.Policies.Current()
	if err != nil {
		return nil //nolint:nilerr // the policies are not loaded yet
	}
	var parameters v1alpha1.AdmissionParameters
	if err := a.Client.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		return client.IgnoreNotFound(err) // lifecycle creates it soon
	}
	last := parameters.Status.Audit
	if last == nil || a.last != nil && a.last.Time.After(last.Time.Time) {
		last = a.last
	}
	due, err := a.trigger.isDue(&a.Config, last, set.Digest(), a.Clock.Now(), policytime.MachineNow())
	if err != nil || !due {
		return err
	}
	return a.Run(ctx, set)
}

// Run audits all objects and writes the results.
func (a *Auditor) Run(ctx context.Context, set *engine.Set) error {
	start := policytime.MachineNow()
	record := v1alpha1.AuditRecord{Time: metav1.NewTime(a.Clock.Now().Truncate(time.Second)), Policies: set.Digest()}
	logger := log.FromContext(ctx).WithName("audit")
	logger.Info("Started audit of the objects of projects", "policies", set.Digest())
	tenants, err := a.tenants(ctx)
	if err != nil {
		return err
	}
	walk := audit.Walk{
		Reader: a.Live, Mapper: a.Client.RESTMapper(), Tenants: tenants, Limits: audit.DefaultLimits, Pause: pauseAfterPage,
		Auditor: &audit.Auditor{Policies: set, Evaluator: &a.evaluator, Now: record.Time.Time},
	}
	report, err := walk.Run(ctx)
	if err != nil {
		return err
	}
	if err := a.writeFigures(ctx, report, set, record.Time); err != nil {
		return err
	}
	if record.Reports, err = a.writeReports(ctx, report); err != nil {
		return err
	}
	record.Evaluated, record.Unevaluated = int64(report.Evaluated), int64(report.Unevaluated)
	record.Violations = int64(report.Total().Violations())
	record.DurationSeconds = int64(policytime.MachineNow().Sub(start).Round(time.Second).Seconds())
	if err := a.writeRecord(ctx, &record); err != nil {
		return err
	}
	a.last = &record
	logger.Info("Finished audit of the objects of projects", "evaluated", report.Evaluated, "unevaluated", report.Unevaluated,
		"violations", record.Violations, "missingRights", report.MissingRights, "duration", policytime.MachineNow().Sub(start).String())
	return nil
}

// tenants returns the tenants of the cache.
func (a *Auditor) tenants(ctx context.Context) (*audit.Tenants, error) {
	var projects v1alpha1.ProjectList
	var departments v1alpha1.DepartmentList
	var pools v1alpha1.NodePoolList
	for _, list := range []client.ObjectList{&projects, &departments, &pools} {
		if err := a.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	var parameters v1alpha1.AdmissionParameters
	if err := a.Client.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get admission parameters: %w", err)
	}
	namespaces := func(name string) (*corev1.Namespace, error) {
		var namespace corev1.Namespace
		err := a.Client.Get(ctx, types.NamespacedName{Name: name}, &namespace)
		return &namespace, client.IgnoreNotFound(err)
	}
	return audit.NewTenants(projects.Items, departments.Items, pools.Items, &parameters.Spec, namespaces), nil
}

// pauseAfterPage waits as long as the page took.
func pauseAfterPage(ctx context.Context, busy time.Duration) error {
	timer := time.NewTimer(max(busy, minPagePause)) //nolint:forbidigo // machine time: the pause between pages
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// trigger decides when an audit is due.
type trigger struct {
	// started is the policy time of the first check: the schedule starts with it until there is a record.
	started time.Time
	// digest is that of the policies in force, and since the machine time of its first check.
	digest string
	since  time.Time
	// pausedUntil is the end of the pause after a failure, in machine time.
	pausedUntil time.Time
}

// isDue reports whether an audit is due: the schedule had a time since the last one, or other policies are in force, and have
// been for the configured delay. now is policy time.
func (t *trigger) isDue(c *config.Audit, last *v1alpha1.AuditRecord, digest string, now, machineNow time.Time) (bool, error) {
	if t.started.IsZero() {
		t.started = now
	}
	if t.digest != digest {
		t.digest, t.since = digest, machineNow
	}
	if machineNow.Before(t.pausedUntil) {
		return false, nil
	}
	from, isChanged := t.started, true
	if last != nil {
		from, isChanged = last.Time.Time, last.Policies != digest
	}
	next, err := c.Next(from)
	if err != nil {
		return false, fmt.Errorf("audit.schedule: %w", err)
	}
	scheduled := !next.IsZero() && !now.Before(next)
	return scheduled || isChanged && machineNow.Sub(t.since) >= c.PolicyChangeDelay.Duration, nil
}
