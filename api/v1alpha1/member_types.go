// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// EmailPattern is the form of an EmailAddress as a regular expression: what RFC
// 5322 calls an addr-spec, without quotes, comments and backticks.
const EmailPattern = `^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+([.][A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`

// EmailAddress is one plain address, such as anna.mueller@example.org: ASCII, no
// display name, no angle brackets, no spaces or line breaks, at most 254
// characters.
//
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=254
// +kubebuilder:validation:Pattern=`^[^@,<>\s]+@[^@,<>\s]+$`
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9!#$%&\\x27*+/=?^_{|}~-]+([.][A-Za-z0-9!#$%&\\x27*+/=?^_{|}~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$')",message="must be one plain address such as anna.mueller@example.org: ASCII, no display name, no brackets, no spaces or line breaks, at most 254 characters"
type EmailAddress string

// DisplayName is a name for people to read: one line of 1 to 200 characters,
// without control characters.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
type DisplayName string

// Contact is somebody who is written to.
type Contact struct {
	// Name is the person's or the office's name, as a mail addresses it.
	//
	// +required
	Name DisplayName `json:"name"`

	// Email is where mail goes. Each address is listed once.
	//
	// +required
	Email EmailAddress `json:"email"`

	// Mute are the kinds of mail that the person does not want. What warns of an end
	// or asks for a decision cannot be left out.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Mute []OptionalNoticeKind `json:"mute,omitempty"`
}

// Owner is a person who answers for a project: is told of its expiry and of its
// workloads' ends, and may renew it.
type Owner struct {
	Contact `json:",inline"`

	// User is the person's name in Kubernetes, as the API server's authentication
	// says it. It tells whose pods are the owner's; without it the owner is told,
	// but not recognized.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	User string `json:"user,omitempty"`
}

// MemberKind says what kind of subject a Member is.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type MemberKind string

// The kinds of members, as in Kubernetes' role bindings.
const (
	MemberUser           MemberKind = "User"
	MemberGroup          MemberKind = "Group"
	MemberServiceAccount MemberKind = "ServiceAccount"
)

// Role is what a member may do, in the scope of the object that lists the member.
//
// +kubebuilder:validation:Enum=department-administrator;editor;research-manager;l1-researcher;l2-researcher;ml-engineer;viewer;department-viewer
type Role string

// The roles that a Department or a Project may give. The role of the system's
// administrators is given by Kubernetes alone.
const (
	// RoleDepartmentAdministrator manages a department's projects and members and
	// approves extensions.
	RoleDepartmentAdministrator Role = "department-administrator"
	// RoleEditor creates and changes workloads of every type.
	RoleEditor Role = "editor"
	// RoleResearchManager looks after people and quotas, and runs nothing.
	RoleResearchManager Role = "research-manager"
	// RoleL1Researcher creates, changes and deletes all workloads in scope.
	RoleL1Researcher Role = "l1-researcher"
	// RoleL2Researcher creates workloads, and changes and deletes only their own.
	RoleL2Researcher Role = "l2-researcher"
	// RoleMLEngineer deploys and changes inference workloads.
	RoleMLEngineer Role = "ml-engineer"
	// RoleViewer reads a project's workloads.
	RoleViewer Role = "viewer"
	// RoleDepartmentViewer reads a department's projects and workloads.
	RoleDepartmentViewer Role = "department-viewer"
)

// Member is somebody with a role. One subject has one role.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == (size(self.__namespace__) > 0)",fieldPath=".namespace",message="must name the namespace of a ServiceAccount, and be left out for a User or a Group"
type Member struct {
	// Kind is User, Group or ServiceAccount.
	//
	// +required
	Kind MemberKind `json:"kind"`

	// Namespace is a ServiceAccount's namespace; other kinds have none.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`

	// Name is the subject's name, as the API server's authentication says it.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	Name string `json:"name"`

	// Role is what the member may do.
	//
	// +required
	Role Role `json:"role"`
}
