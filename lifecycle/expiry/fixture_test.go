// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/lifecycle/notification"
)

// errCrash is the error of the call at which the process crashes.
var errCrash = errors.New("the process crashed")

// policyClock is a policy time that tests set.
type policyClock struct{ now time.Time }

func (c *policyClock) Now() time.Time                      { return c.now }
func (*policyClock) FromReal(t time.Time) time.Time        { return t.UTC() }
func (c *policyClock) RealUntil(t time.Time) time.Duration { return max(0, t.Sub(c.now)) }

// cluster is an API server with one project of a department, and lifecycle with its outbox.
type cluster struct {
	t          testing.TB
	zone       *time.Location
	clock      *policyClock
	client     client.Client
	events     *events.FakeRecorder
	reconciler *Reconciler
	paused     bool
	// badAddresses are refused by the mail server, and downAddresses not accepted yet.
	badAddresses, downAddresses map[v1alpha1.EmailAddress]bool
	// writes counts writes. The crashAt-th one fails, with crashAfter behind the write.
	writes, crashAt int
	crashAfter      bool
}

func newCluster(t testing.TB, department *v1alpha1.Department, project *v1alpha1.Project, objects ...client.Object) *cluster {
	t.Helper()
	// The fake client maps all kinds of its scheme again at each write. Expiry writes kinds of Sluice only.
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t: t, zone: berlin(t), clock: &policyClock{project.CreationTimestamp.UTC()}, events: events.NewFakeRecorder(10000),
		badAddresses: map[v1alpha1.EmailAddress]bool{}, downAddresses: map[v1alpha1.EmailAddress]bool{},
	}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, department, project)...).
		WithStatusSubresource(&v1alpha1.Project{}, &v1alpha1.Notice{}, &v1alpha1.Extension{}).
		WithTypeConverters(applyconfiguration.NewTypeConverter(scheme), managedfields.NewDeducedTypeConverter()).
		WithIndex(&v1alpha1.Notice{}, noticesByProject, indexNotice).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetUID() == "" {
					o.SetUID(uuid.NewUUID())
				}
				return c.write(func() error { return to.Create(ctx, o, opts...) })
			},
			Delete: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return c.write(func() error { return to.Delete(ctx, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, to client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return c.write(func() error { return to.SubResource(sub).Update(ctx, o, opts...) })
			},
			SubResourceApply: func(
				ctx context.Context, to client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
			) error {
				return c.write(func() error { return to.SubResource(sub).Apply(ctx, o, opts...) })
			},
		}).Build()
	c.restart()
	return c
}

// restart starts another lifecycle.
func (c *cluster) restart() {
	c.reconciler = &Reconciler{
		Client: c.client, Live: c.client, Events: c.events, Clock: c.clock,
		Notices:    notification.Recorder{Client: c.client, Live: c.client},
		MailPaused: func(context.Context) (bool, error) { return c.paused, nil },
	}
}

func (c *cluster) write(do func() error) error {
	c.writes++
	if c.writes != c.crashAt {
		return do()
	}
	if c.crashAfter {
		_ = do()
	}
	return errCrash
}

// reconcile reconciles the project once, and returns when to do so again.
func (c *cluster) reconcile() time.Duration {
	c.t.Helper()
	c.reconciler.mail = mailCache{}
	result, err := c.reconciler.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "thesis"}})
	if errors.Is(err, errCrash) {
		c.restart()
		return 0
	}
	if err != nil {
		c.t.Fatalf("at %s: %v", c.clock.now, err)
	}
	return result.RequeueAfter
}

// settle reconciles and delivers until nothing is written any more.
func (c *cluster) settle() (next time.Duration) {
	c.t.Helper()
	for range 20 {
		before := c.writes
		next = c.reconcile()
		c.deliver()
		if c.writes == before {
			return next
		}
	}
	c.t.Fatalf("at %s: lifecycle does not come to rest: %+v", c.clock.now, c.project().Status)
	return 0
}

// runUntil lets policy time pass until a time, from one due time to the next.
func (c *cluster) runUntil(until time.Time) {
	c.t.Helper()
	for c.settle(); c.clock.now.Before(until); c.settle() {
		p, err := c.reconciler.decide(c.t.Context(), c.project(), true)
		if err != nil {
			c.t.Fatal(err)
		}
		next := p.nextChange()
		if next.IsZero() || next.After(until) {
			next = until
		}
		c.clock.now = policytime.Later(next, c.clock.now.Add(time.Second))
	}
}

// deliver sends the Notices that are due and not superseded.
func (c *cluster) deliver() {
	c.t.Helper()
	if c.paused {
		return
	}
	for _, n := range c.notices() {
		if n.Status.Phase != "" || n.Spec.DueAt.After(c.clock.now) || c.downAddresses[n.Spec.Recipient.Email] {
			continue
		}
		if n.Status.Phase = v1alpha1.NoticeSent; c.badAddresses[n.Spec.Recipient.Email] {
			n.Status.Phase = v1alpha1.NoticeFailed
		} else {
			n.Status.SentAt = &metav1.Time{Time: c.clock.now.Truncate(time.Second)}
		}
		if err := c.client.Status().Update(c.t.Context(), &n); err != nil && !errors.Is(err, errCrash) {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) notices() []v1alpha1.Notice {
	c.t.Helper()
	var list v1alpha1.NoticeList
	if err := c.client.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Notice) int {
		return strings.Compare(a.Spec.DueAt.UTC().Format(time.RFC3339)+a.Name, b.Spec.DueAt.UTC().Format(time.RFC3339)+b.Name)
	})
	return list.Items
}

// sentMails returns the mails in order, as "date kind recipient".
func (c *cluster) sentMails() (mails []string) {
	c.t.Helper()
	for _, n := range c.notices() {
		if n.Status.SentAt != nil {
			local, _, _ := strings.Cut(string(n.Spec.Recipient.Email), "@")
			mails = append(mails, strings.Join([]string{n.Status.SentAt.In(c.zone).Format(time.DateOnly), string(n.Spec.Kind), local}, " "))
		}
	}
	slices.Sort(mails)
	return mails
}

func (c *cluster) project() *v1alpha1.Project {
	c.t.Helper()
	p := &v1alpha1.Project{}
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Name: "thesis"}, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) requirePhase(want v1alpha1.ProjectPhase) {
	c.t.Helper()
	if p := c.project(); p.Status.Phase != want {
		c.t.Fatalf("at %s: phase %q, want %q: %+v, %+v", c.clock.now, p.Status.Phase, want, p.Status, p.Status.Expiry)
	}
}

// update changes an object of the cluster.
func update[T client.Object](c *cluster, object T, change func(T)) {
	c.t.Helper()
	if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		c.t.Fatal(err)
	}
	change(object)
	object.SetGeneration(object.GetGeneration() + 1)
	if err := c.client.Update(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

func contactOf(name string) v1alpha1.Contact {
	return v1alpha1.Contact{Name: v1alpha1.DisplayName(name), Email: v1alpha1.EmailAddress(name + "@example.org")}
}

// newStudents returns a department whose projects are valid for a period.
func newStudents(validity string, action v1alpha1.ExpiryAction) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students", UID: "students-uid", Generation: 1},
		Spec: v1alpha1.DepartmentSpec{
			Contacts: []v1alpha1.Contact{contactOf("desk")},
			Projects: v1alpha1.ProjectTerms{Validity: ptr.To(period.MustParsePeriod(validity)), AtExpiry: action},
			Notices:  v1alpha1.NoticeTerms{Language: "de", TimeZone: "Europe/Berlin", Digest: "0 8 * * *"},
		},
	}
}

// newThesis returns a project of that department.
func newThesis(created time.Time, owners ...string) *v1alpha1.Project {
	p := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", UID: "thesis-uid", Generation: 1, CreationTimestamp: metav1.NewTime(created)},
		Spec:       v1alpha1.ProjectSpec{Department: "students"},
		Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "thesis"}},
	}
	for _, owner := range owners {
		p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: contactOf(owner), User: owner})
	}
	return p
}

// newRenewal returns a renewal of the project that was requested at a time.
func newRenewal(name string, at time.Time) *v1alpha1.Extension {
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "thesis", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(at),
			Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "anna"},
		},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: "thesis"},
			Action: v1alpha1.ActionRenew, Reason: "more data",
		},
	}
}

// request creates a renewal now. With a decision it is decided now.
func (c *cluster) request(name string, decision v1alpha1.ExtensionDecision, approver string) *v1alpha1.Extension {
	c.t.Helper()
	e := newRenewal(name, c.clock.now)
	if err := c.client.Create(c.t.Context(), e); err != nil {
		c.t.Fatal(err)
	}
	if decision != "" {
		c.decideRequest(e, decision, approver)
	}
	return e
}

func (c *cluster) decideRequest(e *v1alpha1.Extension, decision v1alpha1.ExtensionDecision, approver string) {
	c.t.Helper()
	e.Status.Decision, e.Status.DecidedBy, e.Status.DecidedAt = decision, approver, &metav1.Time{Time: c.clock.now}
	if err := c.client.Status().Update(c.t.Context(), e); err != nil {
		c.t.Fatal(err)
	}
}

// appliedReason returns the reason of a renewal's condition Applied.
func (c *cluster) appliedReason(e *v1alpha1.Extension) string {
	c.t.Helper()
	if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
		c.t.Fatal(err)
	}
	if applied := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionApplied); applied != nil {
		return applied.Reason
	}
	return ""
}
