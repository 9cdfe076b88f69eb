// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reconciler takes the steps of the expiry of projects. It is the only writer of their phase.
type Reconciler struct {
	// Client reads from the manager's cache, which has the index of Notices, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Notices records Notices.
	Notices notification.Recorder
	// MailPaused reports whether no mail can be sent: mail is paused, or not set up.
	MailPaused func(context.Context) (bool, error)
	// Events records the steps.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock

	terms termsCache
	mail  mailCache
}

// pass is one decision about a project with what it depends on, and what it changes.
type pass struct {
	project *v1alpha1.Project
	// department is nil if it does not exist. The project then keeps its phase.
	department *v1alpha1.Department
	now        time.Time
	terms      Terms
	owners     []v1alpha1.NoticeRecipient
	notices    noticeSet
	renewals   renewals
	requests   deletionRequests
	// renewal is the renewal that is applied now, or nil.
	renewal  *v1alpha1.Extension
	observed Observation
	record   Record
	decision Decision
	// stopped is the number of workloads that a suspension stopped, of a project that ends it now.
	stopped int
	// isNamespaceMissing reports whether the request of the deletion waits for the namespace.
	isNamespaceMissing bool
	// status is the project's status after the pass.
	status v1alpha1.ProjectStatus
}

// Reconcile implements reconcile.Reconciler for the project of the request's name. What the cache shows to be done is
// decided again from the API server: a renewal that the cache lacks wins.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, err := r.decide(ctx, &project, false)
	if err != nil {
		return reconcile.Result{}, err
	}
	if p.isDone() {
		return r.requeueResult(p), nil
	}
	if err := r.Live.Get(ctx, req.NamespacedName, &project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p, err = r.decide(ctx, &project, true); err != nil {
		return reconcile.Result{}, err
	}
	// Each step can be repeated after a crash behind it. The announcement of a change comes before the change, after which
	// it is not known any more; the warnings follow from the status, and so does what became of the renewals.
	for _, reconcileStep := range []func(context.Context, *pass) error{
		r.reconcileAnnouncement, r.reconcileStatus, r.reconcileWarnings, r.markRenewals, r.reconcileDeletionRequest, r.reconcileDeletion,
	} {
		if err := reconcileStep(ctx, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	return r.requeueResult(p), nil
}

// decide decides about a project. With live it reads the Extensions and the state of mail from the API server.
func (r *Reconciler) decide(ctx context.Context, project *v1alpha1.Project, live bool) (*pass, error) {
	p := &pass{project: project, now: r.Clock.Now().UTC().Truncate(time.Second), record: recordOf(&project.Status)}
	p.terms.Zone = time.UTC
	var department v1alpha1.Department
	err := r.Client.Get(ctx, client.ObjectKey{Name: project.Spec.Department}, &department)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get department %s: %w", project.Spec.Department, err)
	}
	isKnown := !apierrors.IsNotFound(err)
	switch {
	case !project.DeletionTimestamp.IsZero():
		if p.notices, err = r.listNotices(ctx, project); err != nil {
			return nil, err
		}
		p.decision.Record = p.record
		p.decision.Record.Phase, p.decision.Record.Step, p.decision.Record.Deadline = v1alpha1.ProjectDeleting, "", time.Time{}
	case !isKnown:
		if p.decision.Record = p.record; p.record.Phase == "" {
			p.decision.Record.Phase = v1alpha1.ProjectActive
		}
	default:
		p.department, p.terms = &department, r.terms.load(&department).StartingWith(project, r.Clock)
		if err := r.observe(ctx, p, live); err != nil {
			return nil, err
		}
		p.decision = Decide(p.now, p.record, p.terms, p.observed)
	}
	p.status = *project.Status.DeepCopy()
	setRecord(&p.status, p.decision.Record, p.now)
	if p.renewal != nil {
		setRenewal(&p.status, p.renewal, p.now)
	}
	setConditions(&p.status, p.conditions())
	return p, nil
}

// observe reads what the decision depends on.
func (r *Reconciler) observe(ctx context.Context, p *pass, live bool) (err error) {
	spec, reader := &p.project.Spec, client.Reader(r.Client)
	if live {
		reader = r.Live
	}
	if p.notices, err = r.listNotices(ctx, p.project); err != nil {
		return err
	}
	extensions, err := listExtensions(ctx, reader, p.project)
	if err != nil {
		return err
	}
	p.renewals, p.requests = renewalsAmong(extensions, p.project), deletionRequestsAmong(extensions, p.project)
	p.owners = notification.ProjectRecipients(p.project, p.department)
	contacts := notification.DepartmentContacts(p.department)
	p.observed = Observation{
		Held: spec.Hold.IsInForce(p.now, p.terms.Zone), Exempt: spec.Exempt.IsInForce(p.now, p.terms.Zone),
		Owners:   func(key WarningKey) Delivery { return p.notices.deliveryTo(p.warningAnnouncement(key), p.owners) },
		Contacts: func(key WarningKey) Delivery { return p.notices.deliveryTo(p.warningAnnouncement(key), contacts) },
	}
	if p.observed.PausedUntil, err = inventory.PausedUntil(ctx, r.Client, p.now); err != nil {
		return err
	}
	if p.observed.MailPaused, err = r.mail.load(ctx, r.MailPaused, live); err != nil {
		return err
	}
	if at := p.renewals.requestedAt; !at.IsZero() {
		p.observed.RequestedAt = r.Clock.FromReal(at).UTC().Truncate(time.Second)
	}
	if !p.terms.Validity.IsZero() && !p.observed.Exempt {
		p.renewal = p.renewals.choose(p.project)
	}
	p.observed.Renewed = p.renewal != nil
	p.requests.observe(&p.observed, &p.terms)
	return nil
}

// isDone reports whether nothing is to be written.
func (p *pass) isDone() bool {
	cached, desired := p.fields()
	obsolete, decided := p.outdatedRequests()
	return equality.Semantic.DeepEqual(cached, desired) && len(p.renewals.approved) == 0 &&
		len(p.missingWarnings()) == 0 && len(p.outdatedWarnings()) == 0 &&
		len(obsolete) == 0 && len(decided) == 0 && !p.isRequestMissing() && !p.isDeletionDue()
}

// fields returns this controller's fields of the status before and after the pass.
func (p *pass) fields() (cached, desired *ac.ProjectApplyConfiguration) {
	return statusFields(p.project.Name, &p.project.Status), statusFields(p.project.Name, &p.status)
}

// reconcileAnnouncement records the Notices of a step and of a renewal.
func (r *Reconciler) reconcileAnnouncement(ctx context.Context, p *pass) error {
	if p.department == nil {
		return nil
	}
	if err := r.countStopped(ctx, p); err != nil {
		return err
	}
	a, found := p.stepAnnouncement()
	if !found {
		return nil
	}
	to := notification.ProjectAndDepartmentRecipients(p.project, p.department)
	if a.Kind == v1alpha1.NoticeProjectRenewed {
		to = p.owners
	}
	_, err := r.Notices.Record(ctx, a, to)
	return err
}

// countStopped counts the workloads that the suspension stopped, if it ends now.
func (r *Reconciler) countStopped(ctx context.Context, p *pass) error {
	if !p.record.hasExpired() || p.decision.Record.Phase != v1alpha1.ProjectActive || p.project.Status.Namespace == nil {
		return nil
	}
	var clocks v1alpha1.WorkloadClockList
	err := r.Client.List(ctx, &clocks, client.InNamespace(p.project.Status.Namespace.Name), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list workload clocks of project %s: %w", p.project.Name, err)
	}
	for i := range clocks.Items {
		if s := clocks.Items[i].Status.Stopped; s != nil && s.Reason == v1alpha1.EndProjectSuspended {
			p.stopped++
		}
	}
	return nil
}

// reconcileStatus writes the status, and then records what changed.
func (r *Reconciler) reconcileStatus(ctx context.Context, p *pass) error {
	cached, desired := p.fields()
	if equality.Semantic.DeepEqual(cached, desired) {
		return nil
	}
	desired.WithUID(p.project.UID)
	if p.record.Phase != "" {
		// Another replica that lost its leadership must not undo a renewal. The first write, at the creation, competes with
		// other controllers.
		desired.WithResourceVersion(p.project.ResourceVersion)
	}
	if err := apply.Status(ctx, r.Client, fieldManager, cached, desired); err != nil {
		return fmt.Errorf("write the expiry of project %s: %w", p.project.Name, err)
	}
	r.recordChange(ctx, p)
	return nil
}

// reconcileWarnings records the warnings that are due, and withdraws those that do not hold any more.
func (r *Reconciler) reconcileWarnings(ctx context.Context, p *pass) error {
	for _, a := range p.missingWarnings() {
		if _, err := r.Notices.Record(ctx, a.Announcement, a.to); err != nil {
			return err
		}
	}
	return r.withdrawWarnings(ctx, p.outdatedWarnings())
}

// The longest times until the next pass, in machine time: in general, while mail that is paused holds a step, and while the
// request of a deletion waits for its namespace.
const (
	maxRequeueInterval      = time.Hour
	mailPausedRequeue       = 30 * time.Second
	missingNamespaceRequeue = time.Minute
)

// requeueResult returns when to decide again.
func (r *Reconciler) requeueResult(p *pass) reconcile.Result {
	next := maxRequeueInterval
	if p.decision.Blocked == v1alpha1.ReasonMailPaused {
		next = mailPausedRequeue
	}
	if p.isNamespaceMissing {
		next = missingNamespaceRequeue
	}
	if at := p.nextChange(); !at.IsZero() {
		next = min(next, max(r.Clock.RealUntil(at), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: next}
}

// nextChange returns when something is due or an exception ends; zero for never.
func (p *pass) nextChange() time.Time {
	next := p.decision.Next
	for _, e := range []*v1alpha1.Exception{p.project.Spec.Hold, p.project.Spec.Exempt} {
		if e.IsInForce(p.now, p.terms.Zone) && e.Until != nil {
			if end := e.Until.End(p.terms.Zone); next.IsZero() || end.Before(next) {
				next = end
			}
		}
	}
	return next
}
