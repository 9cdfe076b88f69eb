// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Recipients are the people of a project: its owners; where it has none, its
// department's contacts. Each is there once.
func Recipients(project *v1alpha1.Project, department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	var people []v1alpha1.Contact
	for _, owner := range project.Spec.Owners {
		people = append(people, owner.Contact)
	}
	if len(people) == 0 {
		return Contacts(department)
	}
	return recipients(people, department)
}

// Contacts are the people of a department, each once.
func Contacts(department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	return recipients(department.Spec.Contacts, department)
}

func recipients(people []v1alpha1.Contact, department *v1alpha1.Department) (recipients []v1alpha1.NoticeRecipient) {
	seen := map[string]bool{}
	for _, contact := range people {
		address := strings.ToLower(string(contact.Email)) // nobody has two that differ in case alone
		if address == "" || seen[address] {
			continue
		}
		seen[address] = true
		recipients = append(recipients, v1alpha1.NoticeRecipient{
			Contact: contact, Language: department.Spec.Notices.Language, TimeZone: department.Spec.Notices.TimeZone,
		})
	}
	return recipients
}
