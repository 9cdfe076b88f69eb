// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// courseProject returns a project with a professor as owner.
func courseProject() (*v1alpha1.Project, *v1alpha1.Department) {
	project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{
		Owners: []v1alpha1.Owner{{
			Contact: v1alpha1.Contact{Name: "Prof. Ada", Email: "ada@example.org", Mute: []v1alpha1.OptionalNoticeKind{"ShareExceeded"}}, User: "oidc:ada",
		}},
		Members: []v1alpha1.Member{
			{Kind: v1alpha1.MemberUser, Name: "ben", Email: "ben.listed@example.org"},
			{Kind: v1alpha1.MemberGroup, Name: "carol", Email: "group@example.org"},
			{Kind: v1alpha1.MemberUser, Name: "dora"},
		},
	}}
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{
		Members: []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: "oidc:erik", Email: "erik@example.org"}},
		Notices: v1alpha1.NoticeTerms{Language: v1alpha1.LanguageGerman, TimeZone: "Europe/Berlin"},
	}}
	return project, department
}

// A course of a hundred students writes no mail to its professor: mail about a workload goes to its
// creator.
func TestWorkloadRecipients(t *testing.T) {
	t.Parallel()
	const owner = "Prof. Ada <ada@example.org>"
	for name, tc := range map[string]struct {
		user     string
		template UserAddressTemplate
		copies   bool
		want     []string
	}{
		"owner":                     {"oidc:ada", "", false, []string{owner}},
		"owner, with copies":        {"oidc:ada", "", true, []string{owner}},
		"member":                    {"ben", "{user}@example.com", false, []string{"ben <ben.listed@example.org>"}},
		"member, with copies":       {"ben", "", true, []string{"ben <ben.listed@example.org>", owner}},
		"member of the department":  {"oidc:erik", "", false, []string{"oidc:erik <erik@example.org>"}},
		"member without an address": {"dora", "{user}@example.com", false, []string{"dora <dora@example.com>"}},
		"no template":               {"dora", "", false, []string{owner}},
		"group of that name":        {"carol", "{user}@example.com", false, []string{"carol <carol@example.com>"}},
		"address":                   {"fay@example.net", "{user}@example.com", false, []string{"fay@example.net <fay@example.net>"}},
		"the owner's address":       {"ADA@example.org", "", true, []string{"ADA@example.org <ADA@example.org>"}},
		"service account":           {"system:serviceaccount:ml:ada", "{user}@example.com", false, []string{owner}},
		"unknown":                   {"", "{user}@example.com", false, []string{owner}},
		"line break in the address": {"fay@example.net\r\nBcc: x@y.z", "{user}@example.com", false, []string{owner}},
		"two addresses":             {"fay@example.net,x@y.z", "{user}@example.com", false, []string{owner}},
		"display name":              {"Fay <fay@example.net>", "{user}@example.com", false, []string{owner}},
		"line break in the name":    {"fay\n", "{user}@example.com", false, []string{owner}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project, department := courseProject()
			department.Spec.Notices.CopyOwners = tc.copies
			recorder := Recorder{UserAddresses: tc.template}
			var got []string
			for _, r := range recorder.WorkloadRecipients(project, department, tc.user) {
				got = append(got, string(r.Name)+" <"+string(r.Email)+">")
				if r.Language != v1alpha1.LanguageGerman || r.TimeZone != "Europe/Berlin" {
					t.Errorf("%s receives it in %q, %q", r.Email, r.Language, r.TimeZone)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// No user name, whatever its text, results in an address or a name that could change a mail's
// header, and each workload has a recipient.
func TestWorkloadRecipientsAreValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		project, department := courseProject()
		user := rapid.OneOf(
			rapid.String(), rapid.StringMatching(`[a-z:]{1,5}@[a-z.]{1,5}[\r\n,<> ]{0,2}[a-z@:]{0,9}`), rapid.StringMatching(`[a-zA-Z0-9._-]{1,300}`),
		).Draw(t, "user")
		recorder := Recorder{UserAddresses: "{user}@example.com"}
		recipients := recorder.WorkloadRecipients(project, department, user)
		if len(recipients) != 1 {
			t.Fatalf("%d recipients", len(recipients))
		}
		to := recipients[0]
		if !to.Email.IsValid() || strings.ContainsAny(string(to.Email)+string(to.Name), "\r\n") || to.Name == "" || len(to.Name) > 200 {
			t.Fatalf("%q <%q>", to.Name, to.Email)
		}
	})
}

// A renewal concerns the user who requested it, the owners and the contacts, each once.
func TestRenewalRecipients(t *testing.T) {
	t.Parallel()
	const owner = "Prof. Ada <ada@example.org>"
	for name, tc := range map[string]struct {
		user               string
		requesters, others []string
	}{
		"an owner":               {"oidc:ada", []string{owner}, []string{"Desk <desk@example.org>", "Dean <dean@example.org>"}},
		"an administrator":       {"oidc:erik", []string{"oidc:erik <erik@example.org>", owner}, []string{"Desk <desk@example.org>", "Dean <dean@example.org>"}},
		"a contact":              {"Dean@example.org", []string{owner}, []string{"Desk <desk@example.org>", "Dean <dean@example.org>"}},
		"a user without address": {"root", []string{owner}, []string{"Desk <desk@example.org>", "Dean <dean@example.org>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project, department := courseProject()
			department.Spec.Contacts = []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}, {Name: "Dean", Email: "dean@example.org"}}
			describe := func(recipients []v1alpha1.NoticeRecipient) (all []string) {
				for _, r := range recipients {
					all = append(all, string(r.Name)+" <"+string(r.Email)+">")
				}
				return all
			}
			requesters, contacts := (&Recorder{}).RenewalRecipients(project, department, tc.user)
			if diff := cmp.Diff(tc.requesters, describe(requesters)); diff != "" {
				t.Errorf("requesters (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.others, describe(contacts)); diff != "" {
				t.Errorf("contacts (-want +got)\n%s", diff)
			}
		})
	}
}

// A name from before the rule on invisible characters keeps no mail from its recipient: the schema would refuse the Notice.
func TestNamesOfRecipientsAreClean(t *testing.T) {
	t.Parallel()
	for name, want := range map[v1alpha1.DisplayName]v1alpha1.DisplayName{
		"Prof. Ada": "Prof. Ada", "Eve\u202etxe\u200b": "Evetxe", "می\u200cخ": "می\u200cخ", "\u2060": "ada@example.org", "a\u2028b\r\n": "ab",
	} {
		project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: name, Email: "ada@example.org"}}}}}
		recipients := ProjectRecipients(project, &v1alpha1.Department{})
		if len(recipients) != 1 || recipients[0].Name != want {
			t.Errorf("%q: recipients %+v, want the name %q", name, recipients, want)
		}
	}
}
