// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
)

// expiringProject is a project whose expiry a test follows.
type expiringProject struct {
	*policyTimeCluster
	name       string
	owner      v1alpha1.Owner
	department *v1alpha1.Department
	start      period.Date
}

// expiryAdministrator administers the departments of these tests.
const expiryAdministrator = "expiry-admin@example.org"

// expiryDesk is the contact of the departments. The weekly summary would come among the mails that the tests count.
var expiryDesk = v1alpha1.Contact{
	Name: "GPU Desk", Email: "expiry-desk@example.org", Mute: []v1alpha1.OptionalNoticeKind{v1alpha1.OptionalNoticeKind(v1alpha1.NoticeWeeklySummary)},
}

// createExpiryDepartment creates a department in Berlin with the default warnings, each a mail of its own.
func (c *policyTimeCluster) createExpiryDepartment(t *testing.T, name string, terms v1alpha1.ProjectTerms, change ...func(*v1alpha1.Department)) *v1alpha1.Department {
	t.Helper()
	d := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "4")},
			Contacts:  []v1alpha1.Contact{expiryDesk},
			Members:   []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: expiryAdministrator, Role: v1alpha1.RoleDepartmentAdministrator}},
			Projects:  terms,
			Notices:   v1alpha1.NoticeTerms{Language: v1alpha1.LanguageGerman, TimeZone: "Europe/Berlin"},
		},
	}
	if terms.AtExpiry != v1alpha1.ExpiryConfirm && terms.SuspendAfter == nil {
		// What follows the expiry comes long after it, also for a validity that a test sets later.
		d.Spec.Projects.SuspendAfter = ptr.To(period.MustParseDuration("1500d"))
		d.Spec.Projects.DeleteAfter = ptr.To(period.MustParseDuration("1600d"))
	}
	for _, change := range change {
		change(d)
	}
	c.createForTest(t, d)
	return d
}

// createExpiringProject creates a project of one owner, which begins today.
func (c *policyTimeCluster) createExpiringProject(t *testing.T, d *v1alpha1.Department, name string, change ...func(*v1alpha1.Project)) *expiringProject {
	t.Helper()
	start := period.DateOf(c.clockFile.Now(), berlinZone(t))
	e := &expiringProject{policyTimeCluster: c, name: name, department: d, start: start, owner: v1alpha1.Owner{
		Contact: v1alpha1.Contact{Name: v1alpha1.DisplayName("Owner of " + name), Email: v1alpha1.EmailAddress(name + "@example.org")}, User: name + "-user@example.org",
	}}
	p := newProject(name, func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools = d.Name, []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "2")}
		p.Spec.Owners, p.Spec.ValidFrom = []v1alpha1.Owner{e.owner}, &start
	}, func(p *v1alpha1.Project) {
		for _, change := range change {
			change(p)
		}
	})
	c.createForTest(t, p)
	e.owner = p.Spec.Owners[0]
	e.waitFor(t, "is Active", func(s *v1alpha1.ProjectStatus) bool { return s.Phase == v1alpha1.ProjectActive && s.Namespace != nil })
	return e
}

func berlinZone(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// waitFor waits until the status of the project meets the condition.
func (e *expiringProject) waitFor(t *testing.T, description string, condition func(*v1alpha1.ProjectStatus) bool) *v1alpha1.Project {
	t.Helper()
	p := &v1alpha1.Project{}
	e.eventuallyAfterStep(t, func() error {
		if err := e.adminClient.Get(t.Context(), client.ObjectKey{Name: e.name}, p); err != nil {
			return err
		}
		if !condition(&p.Status) {
			return unexpectedState(fmt.Sprintf("at %s, project %s %s", e.clockFile.Now(), e.name, description),
				fmt.Sprintf("phase %s, period %d, next %+v, expiry %+v, not sent %v", p.Status.Phase, p.Status.Periods, p.Status.Next, p.Status.Expiry, e.describeMail(t, p)))
		}
		return nil
	})
	return p
}

// describeMail returns why the expiry is blocked, and the Notices about the project that were not sent.
func (e *expiringProject) describeMail(t *testing.T, p *v1alpha1.Project) (texts []string) {
	t.Helper()
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionExpiryBlocked {
			texts = append(texts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
		}
	}
	var notices v1alpha1.NoticeList
	if err := e.adminClient.List(t.Context(), &notices); err != nil {
		t.Fatal(err)
	}
	for i := range notices.Items {
		if n := &notices.Items[i]; n.Spec.Subject != nil && n.Spec.Subject.Name == e.name && n.Status.Phase != v1alpha1.NoticeSent {
			texts = append(texts, fmt.Sprintf("%s due at %s for %s: %+v", n.Name, n.Spec.DueAt, n.Spec.Deadline, n.Status))
		}
	}
	return texts
}

// waitForPhase waits until the project is in a phase.
func (e *expiringProject) waitForPhase(t *testing.T, phase v1alpha1.ProjectPhase) *v1alpha1.Project {
	t.Helper()
	return e.waitFor(t, "is "+string(phase), func(s *v1alpha1.ProjectStatus) bool { return s.Phase == phase })
}

// endOfPeriod returns the end of the n-th period.
func (e *expiringProject) endOfPeriod(t *testing.T, n int) time.Time {
	t.Helper()
	zone := berlinZone(t)
	return e.department.Spec.Projects.Validity.ExpiryOf(e.start.Start(zone), n, zone)
}

// dueAt returns when the warning of a step is due: an hour before its lead, or with the last digest before that.
func (e *expiringProject) dueAt(t *testing.T, deadline time.Time, days int) time.Time {
	t.Helper()
	digests, err := notification.ParseDigestSchedule(e.department.Spec.Notices)
	if err != nil {
		t.Fatal(err)
	}
	// A day of a lead has 24 hours.
	due := deadline.Add(-time.Duration(days)*24*time.Hour - time.Hour)
	if digests != nil {
		due, _, _ = digests.LastRun(due)
	}
	return due
}

// sluiceAs runs the command line as a user. The error contains the output.
func (c *policyTimeCluster) sluiceAs(t *testing.T, user string, args ...string) (string, error) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(c.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range config.AuthInfos {
		u.Impersonate, u.ImpersonateGroups = user, []string{"system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), c.binary, append(args, "--kubeconfig", file)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("sluice %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// renew renews the project as its owner, with the command that the mail says.
func (e *expiringProject) renew(t *testing.T, flags ...string) string {
	t.Helper()
	out, err := e.sluiceAs(t, e.owner.User, append([]string{"renew", "project/" + e.name}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// subjects returns the subjects of the mails to an address, in the order of their delivery.
func (c *policyTimeCluster) subjects(t *testing.T, address v1alpha1.EmailAddress) (subjects []string) {
	t.Helper()
	for _, m := range c.readMailsTo(t, string(address)) {
		subjects = append(subjects, m.subject)
	}
	return subjects
}

// waitForOwnerMails waits until the owner has n mails, and returns the last one.
func (e *expiringProject) waitForOwnerMails(t *testing.T, n int) mailMessage {
	t.Helper()
	e.eventuallyAfterStep(t, func() error {
		if got := e.subjects(t, e.owner.Email); len(got) < n {
			return unexpectedState(fmt.Sprintf("at %s, %s has %d mails", e.clockFile.Now(), e.owner.Email, n), strings.Join(got, " | "))
		}
		return nil
	})
	mails := e.readMailsTo(t, string(e.owner.Email))
	if len(mails) != n {
		t.Errorf("at %s, %s has the mails %s; want %d", e.clockFile.Now(), e.owner.Email, strings.Join(e.subjects(t, e.owner.Email), " | "), n)
	}
	return mails[len(mails)-1]
}

// moment is what happens at a policy time.
type moment struct {
	at time.Time
	do func()
}

// runMoments advances to each moment in their order.
func (c *policyTimeCluster) runMoments(t *testing.T, moments []moment) {
	t.Helper()
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at.Unix(), b.at.Unix()) })
	for _, m := range moments {
		if c.clockFile.Now().Before(m.at) {
			c.advanceTimeTo(t, m.at)
		}
		m.do()
		if t.Failed() {
			t.FailNow()
		}
	}
}
