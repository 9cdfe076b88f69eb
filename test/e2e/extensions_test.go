// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation/extension"
)

// extensionTest has a project whose department approves two extensions of a day
// automatically. Its editor and the department's administrator decide on the others. Two
// Jobs run.
type extensionTest struct {
	ns                string
	ada, editor, dean client.Client
}

const (
	editor = "edgar@example.org"
	dean   = "dean@example.org"
)

func newExtensionTest(t *testing.T) *extensionTest {
	t.Helper()
	a := &extensionTest{ns: "extending"}
	create(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: a.ns},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4")},
			Contacts:  []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}},
			Members:   []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: dean, Role: v1alpha1.RoleDepartmentAdministrator}},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("48h"))}},
			Extensions: v1alpha1.ExtensionTerms{
				SelfService: 2, MaxDuration: ptr.To(period.MustParseDuration("24h")), Window: ptr.To(period.MustParseDuration("30d")),
				Approvers: []v1alpha1.ApproverRole{"department-administrator", "editor"},
			},
		},
	})
	sharedCluster.createGovernedProject(t, a.ns, a.ns, newPoolQuota("dgx", "2", "2"))
	eventually(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: a.ns}}
		if err := refresh(t, p); err != nil {
			return err
		}
		p.Spec.Members = []v1alpha1.Member{
			{Kind: v1alpha1.MemberUser, Name: ada, Role: v1alpha1.RoleL2Researcher},
			{Kind: v1alpha1.MemberUser, Name: editor, Role: v1alpha1.RoleEditor},
		}
		return sharedCluster.adminClient.Update(t.Context(), p)
	})
	users := []string{ada, editor, dean}
	clients := map[string]client.Client{}
	grantExtensionAccess(t, a.ns, users...)
	for _, user := range users {
		clients[user] = clientFor(t, impersonatedConfig(t, user, a.ns))
	}
	a.ada, a.editor, a.dean = clients[ada], clients[editor], clients[dean]
	for _, name := range []string{"training", "folding"} {
		job := newGPUJob(a.ns, name, withGPU)
		// The webhook evaluates the quotas again after the change of the project.
		eventually(t, func() error { return a.ada.Create(t.Context(), job) })
		t.Cleanup(func() { deleteJob(t, job) })
		a.waitForLimit(t, name, "48h")
	}
	return a
}

// grantExtensionAccess gives the users all rights on Extensions in the namespace, so that
// only admission restricts them.
func grantExtensionAccess(t *testing.T, ns string, users ...string) {
	t.Helper()
	create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "extending"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"extensions", "extensions/status", "workloadclocks"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		},
	})
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "extending"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extending"},
	}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	create(t, binding)
}

// waitForLimit waits until the time limit of the Job is want.
func (a *extensionTest) waitForLimit(t *testing.T, job, want string) {
	t.Helper()
	eventually(t, func() error {
		c := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: v1alpha1.WorkloadClockName("batch", "Job", job)}}
		if err := refresh(t, c); err != nil {
			return err
		}
		if c.Status.Limit == nil || c.Status.Limit.InForce.String() != want && c.Status.Limit.InForce.Length() != period.MustParseDuration(want).Length() {
			return unexpectedState("Job "+job+" has the time limit "+want, c.Status.Limit)
		}
		return nil
	})
}

// newExtension returns an Extension for a Job.
func (a *extensionTest) newExtension(name, job, by string) *v1alpha1.Extension {
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: name},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: job},
			Action: v1alpha1.ActionExtend, By: ptr.To(period.MustParseDuration(by)), Reason: "two epochs are left",
		},
	}
}

// createExtension creates the Extension as ada.
func (a *extensionTest) createExtension(t *testing.T, e *v1alpha1.Extension) *v1alpha1.Extension {
	t.Helper()
	if err := a.ada.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, e) })
	return e
}

// waitForDecision waits until the Extension has the decision and the users are notified.
// With an empty decision it waits until the approvers are notified.
func (a *extensionTest) waitForDecision(t *testing.T, e *v1alpha1.Extension, want v1alpha1.ExtensionDecision) {
	t.Helper()
	eventually(t, func() error {
		if err := refresh(t, e); err != nil {
			return err
		}
		announced := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced)
		if e.Status.Decision != want || announced == nil || (want == "") != (announced.Reason == v1alpha1.ReasonRequested) {
			return unexpectedState(fmt.Sprintf("%s has the decision %q", e.Name, want), e.Status)
		}
		return nil
	})
}

// updateExtensionStatus reads the Extension and updates its status as the user of the
// client.
func updateExtensionStatus(t *testing.T, as client.Client, e *v1alpha1.Extension, change func(*v1alpha1.ExtensionStatus)) error {
	t.Helper()
	var err error
	eventually(t, func() error {
		next := e.DeepCopy()
		if err := as.Get(t.Context(), client.ObjectKeyFromObject(e), next); err != nil {
			return err
		}
		change(&next.Status)
		if err = as.Status().Update(t.Context(), next); apierrors.IsConflict(err) {
			return err
		}
		return nil
	})
	return err
}

func setApproved(s *v1alpha1.ExtensionStatus) { s.Decision = v1alpha1.ExtensionApproved }

// A department approves some extensions automatically, and its approvers decide on the
// others under their own names.
func TestExtensions(t *testing.T) {
	t.Parallel()
	a := newExtensionTest(t)
	t.Run("the department approves some automatically", a.testAutomaticApproval)
	t.Run("and no more for concurrent requests", a.testConcurrentExtensions)
	t.Run("approvers decide on the others", a.testManualDecision)
	t.Run("invalid requests are rejected", a.testRejectedExtensions)
	t.Run("the rate limit holds", a.testRateLimit)
}

func (a *extensionTest) testAutomaticApproval(t *testing.T) {
	forged := a.newExtension("first", "training", "24h")
	forged.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: dean}
	first := a.createExtension(t, forged)
	a.waitForDecision(t, first, v1alpha1.ExtensionApproved)
	a.waitForLimit(t, "training", "72h")
	if s := first.Status; s.DecidedBy != "" || s.DecidedAt == nil || s.NewEnd == nil || s.Message != "granted by the department's self-service: 1 of 2 within 30d" {
		t.Errorf("the first extension: %+v", s)
	}
	second := a.createExtension(t, a.newExtension("second", "training", "1d"))
	a.waitForDecision(t, second, v1alpha1.ExtensionApproved)
	a.waitForLimit(t, "training", "96h")
	third := a.createExtension(t, a.newExtension("third", "training", "24h"))
	a.waitForDecision(t, third, "")
	if c := meta.FindStatusCondition(third.Status.Conditions, v1alpha1.ConditionApplied); c == nil || c.Reason != v1alpha1.ReasonAwaitingDecision ||
		!strings.Contains(c.Message, "2 were granted: department-administrator or editor decides") {
		t.Errorf("the third extension: %+v", c)
	}
	a.waitForLimit(t, "training", "96h")
	for _, e := range []*v1alpha1.Extension{first, second, third} {
		if creator := e.Annotations[v1alpha1.AnnotationCreatedBy]; creator != ada {
			t.Errorf("%s was requested by %q", e.Name, creator)
		}
	}
	// A later change keeps the creator as well.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"note":"mine","sluice.dev/created-by":null}}}`))
	if err := a.ada.Patch(t.Context(), first, patch); err != nil {
		t.Fatal(err)
	}
	if creator, note := first.Annotations[v1alpha1.AnnotationCreatedBy], first.Annotations["note"]; creator != ada || note != "mine" {
		t.Errorf("the first extension was requested by %q and has the note %q", creator, note)
	}
	a.waitForNotices(t, "ExtensionDecided first ada@example.org", "ExtensionDecided second ada@example.org", "ExtensionRequested third desk@example.org")
	eventually(t, func() error {
		return a.checkEvent(t, "training", "ExtensionRequested", "24h more requested")
	})
	eventually(t, func() error { return a.checkEvent(t, "training", "ExtensionApproved", "the department's self-service") })
	out, err := exec.CommandContext(t.Context(), sharedCluster.binary, "extensions", "-n", a.ns, "--kubeconfig", filepath.Join(sharedCluster.dir, "kubeconfig")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "REQUESTED BY") || !strings.Contains(string(out), ada) || strings.Contains(string(out), "first") {
		t.Errorf("sluice extensions: %v\n%s", err, out)
	}
}

func (a *extensionTest) testConcurrentExtensions(t *testing.T) {
	created := make([]*v1alpha1.Extension, 8)
	var group sync.WaitGroup
	for i := range created {
		group.Go(func() {
			e := a.newExtension(fmt.Sprint("at-once-", i), "folding", "24h")
			switch err := a.ada.Create(t.Context(), e); {
			case err == nil:
				created[i] = e
				t.Cleanup(func() { deleteAndWait(t, e) })
			case !isPendingLimit(err):
				t.Error(err)
			}
		})
	}
	group.Wait()
	approved := 0
	for _, e := range created {
		if e == nil {
			continue
		}
		eventually(t, func() error {
			if err := refresh(t, e); err != nil {
				return err
			}
			if meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced) == nil {
				return unexpectedState(e.Name+" has a decision or an announcement", e.Status)
			}
			return nil
		})
		if e.Status.Decision == v1alpha1.ExtensionApproved {
			approved++
		}
	}
	if approved != 2 {
		t.Errorf("%d were approved, want 2", approved)
	}
	a.waitForLimit(t, "folding", "96h")
}

// isPendingLimit reports whether a request was refused because its user has too many without a decision.
func isPendingLimit(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), fmt.Sprintf("and the limit is %d;", extension.MaxPendingPerUser))
}

// startDay forgets the requests of the last day, of which a user has at most ten: how many the concurrent ones were differs.
func (a *extensionTest) startDay(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: a.ns}}
		if err := refresh(t, p); err != nil {
			return err
		}
		p.Status.ExtensionRequests = nil
		if err := sharedCluster.adminClient.Status().Update(t.Context(), p); err != nil {
			return err
		}
		probe := a.newExtension("probe", "training", "25h")
		if err := a.ada.Create(t.Context(), probe, client.DryRunAll); err != nil && strings.Contains(err.Error(), "within 24 hours") {
			return err
		}
		return nil
	})
}

func (a *extensionTest) testManualDecision(t *testing.T) {
	a.startDay(t)
	e := a.createExtension(t, a.newExtension("long", "training", "48h"))
	a.waitForDecision(t, e, "")
	err := updateExtensionStatus(t, a.ada, e, setApproved)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ada@example.org cannot decide on it; a user with the role department-administrator or editor in department extending or project extending can") {
		t.Errorf("ada approves it: %v", err)
	}
	if err := updateExtensionStatus(t, a.editor, e, func(s *v1alpha1.ExtensionStatus) {
		setApproved(s)
		s.NewEnd = ptr.To(metav1.Now())
	}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Sluice writes the other fields") {
		t.Errorf("the editor sets the new end: %v", err)
	}
	forged := metav1.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := updateExtensionStatus(t, a.editor, e, func(s *v1alpha1.ExtensionStatus) {
		setApproved(s)
		s.DecidedBy, s.DecidedAt, s.Message = dean, &forged, "see you on Monday"
	}); err != nil {
		t.Fatal(err)
	}
	a.waitForDecision(t, e, v1alpha1.ExtensionApproved)
	if s := e.Status; s.DecidedBy != editor || s.DecidedAt.Year() < 2026 || s.Message != "see you on Monday" || s.NewEnd == nil {
		t.Errorf("the extension was decided by %q at %v: %q, new end %v", s.DecidedBy, s.DecidedAt, s.Message, s.NewEnd)
	}
	a.waitForLimit(t, "training", "144h")
	err = updateExtensionStatus(t, a.dean, e, func(s *v1alpha1.ExtensionStatus) { s.DecidedBy, s.Message = dean, "it was me" })
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a decision is final") {
		t.Errorf("another message after the decision: %v", err)
	}

	denied := a.createExtension(t, a.newExtension("longer", "training", "10d"))
	a.waitForDecision(t, denied, "")
	if err := updateExtensionStatus(t, a.dean, denied, func(s *v1alpha1.ExtensionStatus) { s.Decision = v1alpha1.ExtensionDenied }); err != nil {
		t.Fatal(err)
	}
	a.waitForDecision(t, denied, v1alpha1.ExtensionDenied)
	if err := checkCondition(denied.Status.Conditions, v1alpha1.ConditionApplied, metav1.ConditionFalse, v1alpha1.ReasonDenied); err != nil || denied.Status.DecidedBy != dean {
		t.Errorf("denied by %q: %v", denied.Status.DecidedBy, err)
	}
	// The right to administer the department allows a decision, also without membership.
	own := a.createExtension(t, a.newExtension("longest", "training", "20d"))
	a.waitForDecision(t, own, "")
	if err := updateExtensionStatus(t, sharedCluster.adminClient, own, setApproved); err != nil {
		t.Fatal(err)
	}
	a.waitForDecision(t, own, v1alpha1.ExtensionApproved)
	a.waitForNotices(t, "ExtensionDecided long ada@example.org", "ExtensionDecided longer ada@example.org")
}

func (a *extensionTest) testRejectedExtensions(t *testing.T) {
	a.startDay(t)
	for name, tc := range map[string]struct {
		extension *v1alpha1.Extension
		want      string
	}{
		"a workload that never ran": {a.newExtension("x", "nothing", "24h"), "no GPU pod of this workload has run in the namespace"},
		"a name that is in use":     {a.newExtension("first", "training", "24h"), "already has an extension of this name"},
	} {
		err := a.ada.Create(t.Context(), tc.extension)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	outside := a.newExtension("x", "training", "24h")
	outside.Namespace = metav1.NamespaceDefault
	if err := sharedCluster.adminClient.Create(t.Context(), outside); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no project owns namespace default") {
		t.Errorf("outside projects: %v", err)
	}
}

func (a *extensionTest) testRateLimit(t *testing.T) {
	a.startDay(t)
	var last error
	for i := range 4 * extension.MaxPendingPerUser {
		e := a.newExtension(fmt.Sprint("flood-", i), "training", "25h")
		if last = a.ada.Create(t.Context(), e); last != nil {
			break
		}
		t.Cleanup(func() { deleteAndWait(t, e) })
	}
	if !isPendingLimit(last) {
		t.Errorf("after the rate limit: %v", last)
	}
	var all v1alpha1.ExtensionList
	if err := sharedCluster.adminClient.List(t.Context(), &all, client.InNamespace(a.ns)); err != nil {
		t.Fatal(err)
	}
	open := 0
	for i := range all.Items {
		if all.Items[i].Status.Decision == "" {
			open++
		}
	}
	if open < extension.MaxPendingPerUser { // concurrent requests can exceed the limit
		t.Errorf("%d extensions are pending, want at least %d", open, extension.MaxPendingPerUser)
	}
}

// waitForNotices waits until all Notices exist. Each is given as kind, Extension and
// recipient.
func (a *extensionTest) waitForNotices(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() error {
		var all v1alpha1.NoticeList
		if err := sharedCluster.adminClient.List(t.Context(), &all); err != nil {
			return err
		}
		found := map[string]bool{}
		for i := range all.Items {
			if s := all.Items[i].Spec; s.Subject != nil && s.Subject.Namespace == a.ns {
				found[fmt.Sprintf("%s %s %s", s.Kind, s.Subject.Name, s.Recipient.Email)] = true
			}
		}
		for _, notice := range want {
			if !found[notice] {
				return unexpectedState(notice+" exists", slices.Sorted(maps.Keys(found)))
			}
		}
		return nil
	})
}

// checkEvent returns an error unless the object has such an event.
func (a *extensionTest) checkEvent(t *testing.T, about, reason, text string) error {
	var events corev1.EventList
	if err := sharedCluster.adminClient.List(t.Context(), &events, client.InNamespace(a.ns)); err != nil {
		return err
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Name == about && e.Reason == reason && strings.Contains(e.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no event %s about %s contains %q", reason, about, text)
}
