// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"regexp"
	"strings"
	"unicode"
)

// EmailPattern is the regular expression of an EmailAddress: an addr-spec of RFC 5322 without
// quotes, comments and backticks.
const EmailPattern = `^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+([.][A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*` +
	`@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`

// EmailAddress is one plain mail address, such as anna.mueller@example.org. It is ASCII, has at
// most 254 characters, and contains no display name, angle brackets, spaces or line breaks.
//
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=254
// +kubebuilder:validation:Pattern=`^[^@,<>\s]+@[^@,<>\s]+$`
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9!#$%&\\x27*+/=?^_{|}~-]+([.][A-Za-z0-9!#$%&\\x27*+/=?^_{|}~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$')",message="must be one plain address such as anna.mueller@example.org: ASCII, no display name, no brackets, no spaces or line breaks, at most 254 characters"
type EmailAddress string

// maxEmailLength is the longest mail address, in bytes (RFC 5321, 4.5.3.1.3).
const maxEmailLength = 254

var emailPattern = regexp.MustCompile(EmailPattern)

// IsValid reports whether the address is one plain mail address. Other text, such as an address
// with a line break, could change the header of a mail.
func (e EmailAddress) IsValid() bool {
	return len(e) <= maxEmailLength && emailPattern.MatchString(string(e))
}

// DisplayName is a name in one line of 1 to 200 characters, without control characters. Of the
// invisible format characters it may have the two joiners with which Persian, Indic scripts and
// emoji are written.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:Pattern=`^([^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|[\x{200C}\x{200D}])+$`
type DisplayName string

// Clean returns the name without the characters that are not allowed. A name from before the rule can have them.
func (n DisplayName) Clean() DisplayName {
	return DisplayName(strings.Map(func(r rune) rune {
		if r != '\u200c' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, string(n)))
}

// Contact is a recipient of mail.
type Contact struct {
	// Name is the name of the person or office, as mails address it.
	//
	// +required
	Name DisplayName `json:"name"`

	// Email is the recipient's mail address. An address may occur only once in a list.
	//
	// +required
	Email EmailAddress `json:"email"`

	// Mute lists the kinds of mail that the recipient does not get. Warnings of an expiry or a
	// stop, and requests for a decision, cannot be muted.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Mute []OptionalNoticeKind `json:"mute,omitempty"`
}

// Owner is a person who is responsible for a project. Owners receive mail about its expiry and
// the end of its workloads, and may renew it.
type Owner struct {
	Contact `json:",inline"`

	// User is the owner's Kubernetes user name, as the API server authenticates it. Sluice
	// uses it to find the owner's pods and to recognize the owner's requests. Without it the
	// owner only receives mail.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+$`
	User string `json:"user,omitempty"`
}

// MemberKind is the kind of subject of a Member.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type MemberKind string

// The kinds of members, as in Kubernetes' role bindings.
const (
	MemberUser           MemberKind = "User"
	MemberGroup          MemberKind = "Group"
	MemberServiceAccount MemberKind = "ServiceAccount"
)

// Role is a set of rights in the object that lists the member.
//
// +kubebuilder:validation:Enum=department-administrator;editor;research-manager;l1-researcher;l2-researcher;ml-engineer;viewer;department-viewer
type Role string

// The roles that a Department or a Project may give. Only Kubernetes RBAC can give the role
// system-administrator.
const (
	// RoleDepartmentAdministrator manages the projects and members of a department and
	// approves extensions.
	RoleDepartmentAdministrator Role = "department-administrator"
	// RoleEditor creates and changes workloads of every type.
	RoleEditor Role = "editor"
	// RoleResearchManager manages people and quotas and runs no workloads.
	RoleResearchManager Role = "research-manager"
	// RoleL1Researcher creates, changes and deletes all workloads.
	RoleL1Researcher Role = "l1-researcher"
	// RoleL2Researcher creates workloads, and changes and deletes only its own.
	RoleL2Researcher Role = "l2-researcher"
	// RoleMLEngineer deploys and changes inference workloads.
	RoleMLEngineer Role = "ml-engineer"
	// RoleViewer reads the workloads of a project.
	RoleViewer Role = "viewer"
	// RoleDepartmentViewer reads the projects and workloads of a department.
	RoleDepartmentViewer Role = "department-viewer"
)

// Member grants a role to a subject. A subject has at most one role in an object.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'User' || !has(self.email)",fieldPath=".email",message="must be left out for a Group or a ServiceAccount"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == (size(self.__namespace__) > 0)",fieldPath=".namespace",message="must name the namespace of a ServiceAccount, and be left out for a User or a Group"
type Member struct {
	// Kind is User, Group or ServiceAccount.
	//
	// +required
	Kind MemberKind `json:"kind"`

	// Namespace is the namespace of a ServiceAccount. It must be empty for the other kinds.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`

	// Name is the subject's name, as the API server authenticates it.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+$`
	Name string `json:"name"`

	// Role is the role that the member has.
	//
	// +required
	Role Role `json:"role"`

	// Email is the mail address of a User, for mail about the user's workloads. Members of
	// the project can read it. Default: the user's name if it is an address, else the address
	// that the platform's configuration derives from the name.
	//
	// +optional
	Email EmailAddress `json:"email,omitempty"`
}
