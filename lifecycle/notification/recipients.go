// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// UserAddressTemplate is the mail address of a user with the user's name as {user}, such as
// {user}@example.org. An empty template maps no name.
type UserAddressTemplate string

// userPlaceholder is replaced by the user's name.
const userPlaceholder = "{user}"

// plainUserPattern matches the user names that a template maps. Names with a colon, such as those
// of ServiceAccounts, belong to no person.
var plainUserPattern = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

const maxDisplayNameLength = 200

// WorkloadRecipients returns the recipients of a message about a workload: the user who created it
// or who made a request for it, and then the project's recipients if no address of that user is
// known or the department wants copies.
func (r *Recorder) WorkloadRecipients(project *v1alpha1.Project, department *v1alpha1.Department, user string) []v1alpha1.NoticeRecipient {
	contact, found := userContact(project, department, user, r.UserAddresses)
	if !found {
		return ProjectRecipients(project, department)
	}
	recipients := uniqueRecipients([]v1alpha1.Contact{contact}, department)
	if !department.Spec.Notices.CopyOwners {
		return recipients
	}
	for _, owner := range ProjectRecipients(project, department) {
		if !strings.EqualFold(string(owner.Email), string(contact.Email)) {
			recipients = append(recipients, owner)
		}
	}
	return recipients
}

// CreatorRecipients returns the user who created a workload, or nothing if no address of that user
// is known.
func (r *Recorder) CreatorRecipients(project *v1alpha1.Project, department *v1alpha1.Department, user string) []v1alpha1.NoticeRecipient {
	contact, found := userContact(project, department, user, r.UserAddresses)
	if !found {
		return nil
	}
	return uniqueRecipients([]v1alpha1.Contact{contact}, department)
}

// WithoutOwners returns the recipients who do not own the project.
func WithoutOwners(recipients []v1alpha1.NoticeRecipient, project *v1alpha1.Project) []v1alpha1.NoticeRecipient {
	return slices.DeleteFunc(recipients, func(r v1alpha1.NoticeRecipient) bool {
		return slices.ContainsFunc(project.Spec.Owners, func(o v1alpha1.Owner) bool {
			return strings.EqualFold(string(o.Email), string(r.Email))
		})
	})
}

// userContact returns the contact of a user: as listed in the project or its department, else the
// user name if it is an address, else the address of the template.
func userContact(
	project *v1alpha1.Project, department *v1alpha1.Department, user string, template UserAddressTemplate,
) (contact v1alpha1.Contact, found bool) {
	if user == "" {
		return v1alpha1.Contact{}, false
	}
	for _, owner := range project.Spec.Owners {
		if owner.User == user && owner.Email.IsValid() {
			return owner.Contact, true
		}
	}
	var address v1alpha1.EmailAddress
	for _, members := range [][]v1alpha1.Member{project.Spec.Members, department.Spec.Members} {
		for _, member := range members {
			if address == "" && member.Kind == v1alpha1.MemberUser && member.Name == user {
				address = member.Email
			}
		}
	}
	switch {
	case address != "":
	case v1alpha1.EmailAddress(user).IsValid():
		address = v1alpha1.EmailAddress(user)
	case plainUserPattern.MatchString(user):
		address = v1alpha1.EmailAddress(strings.ReplaceAll(string(template), userPlaceholder, user))
	}
	if !address.IsValid() {
		return v1alpha1.Contact{}, false
	}
	name := v1alpha1.TruncateText(user, maxDisplayNameLength)
	return v1alpha1.Contact{Name: v1alpha1.DisplayName(name), Email: address}, true
}

// ProjectRecipients returns a project's owners, or its department's contacts if it has none,
// without duplicates.
func ProjectRecipients(project *v1alpha1.Project, department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	var contacts []v1alpha1.Contact
	for _, owner := range project.Spec.Owners {
		contacts = append(contacts, owner.Contact)
	}
	if len(contacts) == 0 {
		return DepartmentContacts(department)
	}
	return uniqueRecipients(contacts, department)
}

// ProjectAndDepartmentRecipients returns a project's owners and its department's contacts, without
// duplicates.
func ProjectAndDepartmentRecipients(project *v1alpha1.Project, department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	var contacts []v1alpha1.Contact
	for _, owner := range project.Spec.Owners {
		contacts = append(contacts, owner.Contact)
	}
	return uniqueRecipients(append(contacts, department.Spec.Contacts...), department)
}

// RenewalRecipients returns the recipients of a message about the renewal of a project, without duplicates: the user who
// requested it and the owners, and the department's contacts. A contact is no requester.
func (r *Recorder) RenewalRecipients(
	project *v1alpha1.Project, department *v1alpha1.Department, user string,
) (requesters, contacts []v1alpha1.NoticeRecipient) {
	contacts = DepartmentContacts(department)
	requesters = r.CreatorRecipients(project, department, user)
	for _, recipient := range ProjectRecipients(project, department) {
		if !containsAddress(requesters, recipient.Email) {
			requesters = append(requesters, recipient)
		}
	}
	requesters = slices.DeleteFunc(requesters, func(r v1alpha1.NoticeRecipient) bool { return containsAddress(contacts, r.Email) })
	return requesters, contacts
}

func containsAddress(recipients []v1alpha1.NoticeRecipient, address v1alpha1.EmailAddress) bool {
	return slices.ContainsFunc(recipients, func(r v1alpha1.NoticeRecipient) bool {
		return strings.EqualFold(string(r.Email), string(address))
	})
}

// DepartmentContacts returns the contacts of a department without duplicates.
func DepartmentContacts(department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	return uniqueRecipients(department.Spec.Contacts, department)
}

func uniqueRecipients(contacts []v1alpha1.Contact, department *v1alpha1.Department) (recipients []v1alpha1.NoticeRecipient) {
	known := map[string]bool{}
	for _, contact := range contacts {
		address := strings.ToLower(string(contact.Email)) // addresses that differ in case only are the same
		if address == "" || known[address] {
			continue
		}
		known[address] = true
		contact.Name = cmp.Or(contact.Name.Clean(), v1alpha1.DisplayName(contact.Email))
		recipients = append(recipients, v1alpha1.NoticeRecipient{
			Contact: contact, Language: department.Spec.Notices.Language, TimeZone: department.Spec.Notices.TimeZone,
		})
	}
	return recipients
}
