// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// renewalTest has a project that is about to expire. Its department approves no renewal by itself. The editor decides on
// extensions, the department's administrator on renewals.
type renewalTest struct {
	extensionTest
	owner client.Client
}

func newRenewalTest(t *testing.T) *renewalTest {
	t.Helper()
	a := &renewalTest{extensionTest: extensionTest{ns: "renewing"}}
	create(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: a.ns},
		Spec: v1alpha1.DepartmentSpec{
			NodePools:  []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "1")},
			Contacts:   []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}},
			Members:    []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: dean, Role: v1alpha1.RoleDepartmentAdministrator}},
			Extensions: v1alpha1.ExtensionTerms{Approvers: []v1alpha1.ApproverRole{"editor"}},
			// A period that is shorter than its only warning: the project is Expiring from its first day on.
			Projects: v1alpha1.ProjectTerms{
				Validity: ptr.To(period.MustParsePeriod("P7D")), Renewals: v1alpha1.RenewalTerms{SelfService: ptr.To[int32](0)},
			},
			Notices: v1alpha1.NoticeTerms{ProjectExpiry: []period.Duration{period.MustParseDuration("30d")}},
		},
	})
	sharedCluster.createGovernedProject(t, a.ns, a.ns, newPoolQuota("dgx", "0", "1"))
	eventually(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: a.ns}}
		if err := refresh(t, p); err != nil {
			return err
		}
		p.Spec.Owners = []v1alpha1.Owner{
			{Contact: v1alpha1.Contact{Name: "Anna Müller", Email: "anna.mueller@example.org"}, User: "oidc:anna"},
			{Contact: v1alpha1.Contact{Name: "Ben Weber", Email: "ben.weber@example.org"}},
		}
		p.Spec.Members = []v1alpha1.Member{
			{Kind: v1alpha1.MemberUser, Name: ada, Role: v1alpha1.RoleL2Researcher},
			{Kind: v1alpha1.MemberUser, Name: editor, Role: v1alpha1.RoleEditor},
		}
		return sharedCluster.adminClient.Update(t.Context(), p)
	})
	for user, c := range map[string]*client.Client{"oidc:anna": &a.owner, ada: &a.ada, editor: &a.editor, dean: &a.dean} {
		*c = clientFor(t, impersonatedConfig(t, user, a.ns))
	}
	return a
}

// setExpiring makes the project Expiring.
func (a *renewalTest) setExpiring(t *testing.T) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Expiring"}}`))
	return sharedCluster.adminClient.Status().Patch(t.Context(), &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: a.ns}}, patch)
}

// newRenewal returns a renewal that claims to be approved.
func (a *renewalTest) newRenewal(name string, onBehalfOf v1alpha1.EmailAddress) *v1alpha1.Extension {
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: name},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: a.ns},
			Action: v1alpha1.ActionRenew, Reason: "the defense is in June", OnBehalfOf: onBehalfOf,
		},
		Status: v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved},
	}
}

// request creates a renewal, which must wait for a decision.
func (a *renewalTest) request(t *testing.T, as client.Client, e *v1alpha1.Extension) {
	t.Helper()
	eventually(t, func() error { // until the webhook has observed the phase and the members
		if err := a.setExpiring(t); err != nil {
			return err
		}
		return as.Create(t.Context(), e.DeepCopy())
	})
	t.Cleanup(func() { deleteAndWait(t, e) })
	a.waitForDecision(t, e, "")
}

// expectRefusal creates a renewal, which must be refused.
func (a *renewalTest) expectRefusal(t *testing.T, as client.Client, e *v1alpha1.Extension, want string) {
	t.Helper()
	if err := as.Create(t.Context(), e); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s on behalf of %q: %v, want %q", e.Name, e.Spec.OnBehalfOf, err, want)
	}
}

// An owner requests the renewal of a project, or the department's administrator for one. The approvers of renewals
// decide. Owners and contacts get a mail of both. Guards invariant 4 of the design.
func TestRenewals(t *testing.T) {
	t.Parallel()
	a := newRenewalTest(t)
	first := a.newRenewal("first", "")
	a.request(t, a.owner, first)
	a.waitForNotices(t, "ExtensionRequested first anna.mueller@example.org", "ExtensionRequested first ben.weber@example.org",
		"ExtensionRequested first desk@example.org")

	const notOwner = "is no owner of project renewing; ask an owner (Anna Müller, Ben Weber)"
	a.expectRefusal(t, a.ada, a.newRenewal("x", ""), notOwner)
	a.expectRefusal(t, a.editor, a.newRenewal("x", "ben.weber@example.org"), notOwner)
	a.expectRefusal(t, a.dean, a.newRenewal("x", ""), "spec.onBehalfOf: Required value: you are no owner of project renewing")
	a.expectRefusal(t, a.dean, a.newRenewal("x", ada), "must be the address of an owner of project renewing")
	a.expectRefusal(t, a.owner, a.newRenewal("x", ""), "has the renewal first, which waits for a decision by a user with the role department-administrator")

	for name, as := range map[string]client.Client{"the editor": a.editor, "the owner": a.owner} {
		if err := updateExtensionStatus(t, as, first, setApproved); !apierrors.IsForbidden(err) {
			t.Errorf("%s decides: %v", name, err)
		}
	}
	if err := updateExtensionStatus(t, a.dean, first, func(s *v1alpha1.ExtensionStatus) {
		s.Decision, s.Message = v1alpha1.ExtensionDenied, "others wait"
	}); err != nil {
		t.Fatal(err)
	}
	a.waitForDecision(t, first, v1alpha1.ExtensionDenied)
	if first.Status.DecidedBy != dean {
		t.Errorf("decided by %q", first.Status.DecidedBy)
	}
	a.waitForNotices(t, "ExtensionDecided first anna.mueller@example.org", "ExtensionDecided first ben.weber@example.org",
		"ExtensionDecided first desk@example.org")

	second := a.newRenewal("second", "ben.weber@example.org")
	a.request(t, a.dean, second)
	if second.Annotations[v1alpha1.AnnotationCreatedBy] != dean || second.Spec.OnBehalfOf != "ben.weber@example.org" {
		t.Errorf("requested by %v for %q", second.Annotations, second.Spec.OnBehalfOf)
	}
	a.waitForNotices(t, fmt.Sprintf("ExtensionRequested second %s", dean), "ExtensionRequested second anna.mueller@example.org")
	if err := updateExtensionStatus(t, a.dean, second, func(s *v1alpha1.ExtensionStatus) { s.Decision = v1alpha1.ExtensionDenied }); err != nil {
		t.Fatal(err)
	}
	a.waitForDecision(t, second, v1alpha1.ExtensionDenied)

	// The command in the mails, by an administrator of all departments.
	renew := []string{"renew", "project/" + a.ns, "--on-behalf-of", "Anna.Mueller@example.org", "--wait", "1s"}
	eventually(t, func() error {
		if err := a.setExpiring(t); err != nil {
			return err
		}
		out, err := exec.CommandContext(t.Context(), sharedCluster.binary,
			append(renew, "--kubeconfig", filepath.Join(sharedCluster.dir, "kubeconfig"))...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Extension project-renewing-") || !strings.Contains(string(out), ": not decided yet") {
			return fmt.Errorf("sluice renew: %w\n%s", err, out)
		}
		return nil
	})
}
