// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

// Addresses that differ in case get one Notice, and the contacts of a department stand in for missing
// owners.
func TestProjectRecipients(t *testing.T) {
	contact := func(email v1alpha1.EmailAddress, mute ...v1alpha1.OptionalNoticeKind) v1alpha1.Contact {
		return v1alpha1.Contact{Name: "Contact", Email: email, Mute: mute}
	}
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{
		Contacts: []v1alpha1.Contact{contact("Desk@example.org"), contact("desk@EXAMPLE.org"), contact("")},
		Notices:  v1alpha1.NoticeTerms{Language: v1alpha1.LanguageGerman},
	}}
	project := func(owners ...v1alpha1.Contact) *v1alpha1.Project {
		p := &v1alpha1.Project{}
		for _, owner := range owners {
			p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: owner})
		}
		return p
	}
	muted := v1alpha1.OptionalNoticeKind(v1alpha1.NoticeShareExceeded)
	for name, tc := range map[string]struct {
		project *v1alpha1.Project
		want    []v1alpha1.Contact
	}{
		"owners": {
			project(contact("anna@example.org"), contact("ben@example.org")),
			[]v1alpha1.Contact{contact("anna@example.org"), contact("ben@example.org")},
		},
		"one owner, twice": {
			project(contact("anna@example.org", muted), contact("ANNA@example.org")), []v1alpha1.Contact{contact("anna@example.org", muted)},
		},
		"no owners":         {project(), []v1alpha1.Contact{contact("Desk@example.org")}},
		"without addresses": {project(contact("")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []v1alpha1.Contact
			for _, r := range ProjectRecipients(tc.project, department) {
				got = append(got, r.Contact)
				if r.Language != v1alpha1.LanguageGerman {
					t.Errorf("%s gets it in %q", r.Email, r.Language)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Addresses that differ in case have the same Notice name.
func TestNoticeNameIgnoresAddressCase(t *testing.T) {
	a := Announcement{Kind: v1alpha1.NoticeWorkloadEnding, Subject: v1alpha1.ObjectReference{Kind: "Job", Name: "training"}, Threshold: "4h"}
	to := func(email v1alpha1.EmailAddress) v1alpha1.NoticeRecipient {
		return v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Email: email}}
	}
	if one, other := a.NoticeName(to("anna@example.org")), a.NoticeName(to("Anna@Example.ORG")); one != other {
		t.Errorf("%s and %s", one, other)
	}
	b := a
	b.Threshold = "30m"
	if a.NoticeName(to("anna@example.org")) == b.NoticeName(to("anna@example.org")) {
		t.Error("two warnings have one name")
	}
}
