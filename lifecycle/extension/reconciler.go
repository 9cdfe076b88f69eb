// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/notices/message"
)

// Reconciler answers Extensions of workloads' time.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server: what is granted is counted there.
	Live client.Reader
	// Notices records what people are told.
	Notices notices.Recorder
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time.
	Clock clock.Clock
}

// request is an Extension with all that it is answered by.
type request struct {
	*v1alpha1.Extension
	// clock is that of the workload; nil where the workload is gone.
	clock      *v1alpha1.WorkloadClock
	project    *v1alpha1.Project
	department *v1alpha1.Department
	now        time.Time
}

// Reconcile implements reconcile.Reconciler for the Extension of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	asked, err := r.read(ctx, req.NamespacedName)
	if asked == nil || err != nil {
		return reconcile.Result{}, err
	}
	switch status := &asked.Status; {
	case status.Decision == "" && asked.clock == nil:
		err = r.decide(ctx, asked, v1alpha1.ExtensionRefused, because{code: message.BecauseWorkloadGone})
	case status.Decision == "" && len(asked.clock.Status.Extensions) >= v1alpha1.MaxClockExtensions:
		err = r.decide(ctx, asked, v1alpha1.ExtensionRefused, because{code: message.BecauseExtendedTooOften, used: len(asked.clock.Status.Extensions)})
	case status.Decision == "" && !leftToPeople(asked.Extension):
		err = r.answer(ctx, asked)
	case status.Decision == "", told(asked.Extension):
	case status.Decision == v1alpha1.ExtensionRefused:
		err = r.announce(ctx, asked, metav1.ConditionFalse, v1alpha1.ReasonRefused, "it was refused")
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionApplied):
		err = r.announce(ctx, asked, metav1.ConditionTrue, "", "")
	case asked.clock == nil:
		err = r.announce(ctx, asked, metav1.ConditionFalse, v1alpha1.ReasonTargetGone, because{code: message.BecauseWorkloadGone}.String())
	}
	return reconcile.Result{}, err
}

// read is the Extension as the API server has it, with what it is answered by; nil
// where there is nothing to answer, or nobody to.
func (r *Reconciler) read(ctx context.Context, name types.NamespacedName) (*request, error) {
	// Most are settled: for those the cache is good enough.
	var seen v1alpha1.Extension
	if err := r.Client.Get(ctx, name, &seen); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if seen.Spec.Action != v1alpha1.ActionExtend || seen.Spec.By == nil || told(&seen) {
		return nil, nil
	}
	asked := &request{Extension: &v1alpha1.Extension{}, now: r.Clock.Now().Truncate(time.Second)}
	if err := r.Live.Get(ctx, name, asked.Extension); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var err error
	if asked.project, asked.department, err = inventory.Owner(ctx, r.Client, name.Namespace); asked.project == nil || err != nil {
		return nil, err
	}
	asked.clock = &v1alpha1.WorkloadClock{}
	err = r.Live.Get(ctx, clockOf(asked.Extension), asked.clock)
	switch {
	case apierrors.IsNotFound(err), err == nil && asked.clock.Status.GoneSince != nil:
		asked.clock = nil
	case err != nil:
		return nil, fmt.Errorf("reading the clock of %s: %w", asked.workload(), err)
	}
	return asked, nil
}

// clockOf is the name of the clock of the workload for which something is asked.
func clockOf(e *v1alpha1.Extension) types.NamespacedName {
	target := e.Spec.Target
	group := schema.FromAPIVersionAndKind(target.APIVersion, "").Group
	return types.NamespacedName{Namespace: e.Namespace, Name: v1alpha1.WorkloadClockName(group, target.Kind, target.Name)}
}

// told tells whether people were told what was decided: then nothing is left to do.
func told(e *v1alpha1.Extension) bool {
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced)
	return c != nil && c.Reason == v1alpha1.ReasonDecided
}

// answer grants what the department does by itself, and leaves the rest to people.
func (r *Reconciler) answer(ctx context.Context, asked *request) error {
	var all v1alpha1.ExtensionList
	if err := r.Live.List(ctx, &all, client.InNamespace(asked.Namespace)); err != nil {
		return fmt.Errorf("counting the extensions of namespace %s: %w", asked.Namespace, err)
	}
	answer := termsOf(asked.department).answer(asked.Extension, all.Items, asked.clock, asked.now)
	if answer.granted {
		return r.decide(ctx, asked, v1alpha1.ExtensionApproved, answer.why)
	}
	return r.ask(ctx, asked, answer.why)
}

// decide writes a decision that nobody had to make. It fails where somebody wrote
// on the Extension since it was read.
func (r *Reconciler) decide(ctx context.Context, asked *request, decision v1alpha1.ExtensionDecision, why because) error {
	next := asked.DeepCopy()
	next.Status.Decision, next.Status.Message = decision, why.String()
	next.Status.DecidedBy, next.Status.DecidedAt = "", &metav1.Time{Time: asked.now}
	if err := r.write(ctx, next); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).WithName("decisions").Info("answered", "project", asked.project.Name, "workload", asked.workload(), "by", asked.Spec.By.String(),
		"askedBy", asked.Annotations[v1alpha1.AnnotationCreatedBy], "decision", decision, "because", why.String())
	return nil
}

func (r *Reconciler) write(ctx context.Context, next *v1alpha1.Extension) error {
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing extension %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// workload names the workload in words.
func (q *request) workload() string { return q.Spec.Target.Kind + " " + q.Spec.Target.Name }
