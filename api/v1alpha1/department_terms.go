// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"sluice.dev/api/period"
)

// ExpiryAction says what happens when a project's validity is over.
//
// +kubebuilder:validation:Enum=Expire;Confirm
type ExpiryAction string

// The ways in which a validity ends.
const (
	// ExpiryExpire ends the project step by step unless it is renewed.
	ExpiryExpire ExpiryAction = "Expire"
	// ExpiryConfirm asks the owners whether the project is still needed.
	ExpiryConfirm ExpiryAction = "Confirm"
)

// ProjectTerms says how long projects are valid and what happens then.
//
// +kubebuilder:validation:XValidation:rule="self.atExpiry != 'Expire' || self.deleteAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() > self.suspendAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".deleteAfter",messageExpression="'must be longer than suspendAfter, ' + self.suspendAfter"
type ProjectTerms struct {
	// Validity is the calendar period after which a project expires or its owners
	// are asked, such as P6M or P1Y. Without it projects never end.
	//
	// +optional
	Validity *period.Period `json:"validity,omitempty"`

	// AtExpiry is Expire (suspend, then delete) or Confirm (ask, and delete only
	// what nobody answers for).
	//
	// +optional
	// +kubebuilder:default=Expire
	AtExpiry ExpiryAction `json:"atExpiry,omitempty"`

	// SuspendAfter is how long after its expiry a project's running work is
	// stopped. It has no meaning with Confirm.
	//
	// +optional
	// +kubebuilder:default="14d"
	SuspendAfter *period.Duration `json:"suspendAfter,omitempty"`

	// DeleteAfter is how long after its expiry a project waits for the approval of
	// its deletion. Longer than suspendAfter.
	//
	// +optional
	// +kubebuilder:default="30d"
	DeleteAfter *period.Duration `json:"deleteAfter,omitempty"`
}

// ApproverRole is a role whose holders may decide on extensions.
//
// +kubebuilder:validation:Enum=system-administrator;department-administrator;editor;research-manager
type ApproverRole string

// RoleSystemAdministrator may approve, but is no role that an object here can give.
const RoleSystemAdministrator ApproverRole = "system-administrator"

// ExtensionTerms says how workloads get more time.
type ExtensionTerms struct {
	// SelfService is how many extensions a workload gets within the window without
	// anybody's approval, from 0 (none, the default) to 100.
	//
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SelfService int32 `json:"selfService,omitempty"`

	// MaxDuration is the longest time that one such extension adds.
	//
	// +optional
	// +kubebuilder:default="24h"
	MaxDuration *period.Duration `json:"each,omitempty"`

	// Window is the time over which selfService counts.
	//
	// +optional
	// +kubebuilder:default="30d"
	Window *period.Duration `json:"window,omitempty"`

	// Approvers are the roles whose holders decide on everything beyond.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"department-administrator"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Approvers []ApproverRole `json:"approvers,omitempty"`
}

// Holiday is a row of days, both ends included.
//
// +kubebuilder:validation:XValidation:rule="self.from <= self.to",fieldPath=".to",message="must not be before from"
type Holiday struct {
	// From is the first day.
	//
	// +required
	From period.Date `json:"from"`

	// To is the last day, not before the first.
	//
	// +required
	To period.Date `json:"to"`
}

// Language is the language of a mail.
//
// +kubebuilder:validation:Enum=de;en
type Language string

// The languages in which Sluice writes.
const (
	LanguageGerman  Language = "de"
	LanguageEnglish Language = "en"
)

// NoticeTerms says when and how people are told.
type NoticeTerms struct {
	// Language is the language of the department's mail.
	//
	// +optional
	// +kubebuilder:default=en
	Language Language `json:"language,omitempty"`

	// ProjectExpiry are the leads at which a project's owners are warned of each
	// of its steps.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"30d","7d","1d"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	ProjectExpiry []period.Duration `json:"projectExpiry,omitempty"`

	// WorkloadEnd are the leads at which the people of a workload are warned of
	// its end.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"24h","4h","30m"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	WorkloadEnd []period.Duration `json:"workloadEnd,omitempty"`

	// Digest is when the warnings of projects are collected into one mail, as a
	// cron expression of five fields: minute, hour, day of month, month, day of
	// week. Without it each is a mail of its own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9*/,-]+ +[0-9*/,-]+ +[0-9*/,?-]+ +[0-9A-Za-z*/,-]+ +[0-9A-Za-z*/,?-]+$')",message="must be a cron expression of five fields (minute, hour, day of month, month, day of week), such as 0 8 * * *"
	Digest string `json:"digest,omitempty"`

	// TimeZone is where the department's days begin and end, as the IANA database
	// names it: Europe/Berlin.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && self != 'Local'",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}
