// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"sluice.dev/api/period"
)

// ExpiryAction selects what happens when a project's validity ends.
//
// +kubebuilder:validation:Enum=Expire;Confirm
type ExpiryAction string

// The actions at the end of a validity.
const (
	// ExpiryExpire suspends the project and later requests its deletion, unless it is
	// renewed.
	ExpiryExpire ExpiryAction = "Expire"
	// ExpiryConfirm asks the owners by mail to confirm that the project is still needed.
	ExpiryConfirm ExpiryAction = "Confirm"
)

// ProjectTerms sets how long projects are valid and what happens when the validity ends.
//
// +kubebuilder:validation:XValidation:rule="self.atExpiry != 'Expire' || self.deleteAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() > self.suspendAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".deleteAfter",messageExpression="'must be longer than suspendAfter, ' + self.suspendAfter"
type ProjectTerms struct {
	// Validity is the calendar period for which a project is valid, such as P6M or P1Y. Each
	// period is counted from the project's validFrom, and ends with a day of the department's time
	// zone. A day that the month lacks becomes its last one. If the validity is set or shortened
	// later, a project ends with the first period that has all warnings ahead. Without it projects
	// never expire.
	//
	// +optional
	Validity *period.Period `json:"validity,omitempty"`

	// AtExpiry selects what happens when the validity ends. With Expire (the default) the project
	// accepts no new pods with GPUs until it is renewed; it is suspended after suspendAfter, and its
	// deletion is requested after deleteAfter. Confirm asks the owners whether the project is still
	// needed, and requests its deletion only if no owner confirms; until then the project works.
	//
	// +optional
	// +kubebuilder:default=Expire
	AtExpiry ExpiryAction `json:"atExpiry,omitempty"`

	// SuspendAfter is the time between a project's expiry and the stop of its running
	// workloads. It has no effect with Confirm. Default: 14d.
	//
	// +optional
	// +kubebuilder:default="14d"
	SuspendAfter *period.Duration `json:"suspendAfter,omitempty"`

	// DeleteAfter is the time between a project's expiry and the request to approve its
	// deletion. With Expire it must be longer than suspendAfter. Default: 30d.
	//
	// +optional
	// +kubebuilder:default="30d"
	DeleteAfter *period.Duration `json:"deleteAfter,omitempty"`

	// Renewals sets how projects get another period of validity.
	//
	// +optional
	// +kubebuilder:default={}
	Renewals RenewalTerms `json:"renewals,omitempty,omitzero"`
}

// SelfServiceRenewals returns the number of renewals that a project gets without approval. limited
// is false if it gets all of them.
func (t *ProjectTerms) SelfServiceRenewals() (n int, limited bool) {
	if t.Renewals.SelfService == nil {
		return 0, t.AtExpiry != ExpiryConfirm
	}
	return int(*t.Renewals.SelfService), true
}

// RenewalTerms sets how projects get another period of validity.
type RenewalTerms struct {
	// SelfService is the number of renewals that a project gets over its life without approval,
	// from 0 to 100. Default: 0 with the expiry action Expire, no limit with Confirm.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SelfService *int32 `json:"selfService,omitempty"`

	// Approvers are the roles whose holders decide on all other renewals. Default:
	// department-administrator.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"department-administrator"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Approvers []ApproverRole `json:"approvers,omitempty"`
}

// ApproverRole is a role whose holders may decide on extensions.
//
// +kubebuilder:validation:Enum=system-administrator;department-administrator;editor;research-manager
type ApproverRole string

// RoleSystemAdministrator may approve extensions. No Department or Project can grant it.
const RoleSystemAdministrator ApproverRole = "system-administrator"

// ExtensionTerms sets how workloads get more time.
type ExtensionTerms struct {
	// SelfService is the number of extensions that a workload gets within the window without
	// approval, from 0 (none, the default) to 100.
	//
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SelfService int32 `json:"selfService,omitempty"`

	// MaxDuration is the longest time that one extension without approval adds. Default: 24h.
	//
	// +optional
	// +kubebuilder:default="24h"
	MaxDuration *period.Duration `json:"maxDuration,omitempty"`

	// Window is the time over which selfService counts extensions. Default: 30d.
	//
	// +optional
	// +kubebuilder:default="30d"
	Window *period.Duration `json:"window,omitempty"`

	// Approvers are the roles whose holders decide on all other extensions. Default:
	// department-administrator.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"department-administrator"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Approvers []ApproverRole `json:"approvers,omitempty"`
}

// defaultMaxDuration is the default of ExtensionTerms.MaxDuration.
var defaultMaxDuration = period.MustParseDuration("24h")

// LongestExtension returns maxDuration, or its default if it is not set.
func (t ExtensionTerms) LongestExtension() period.Duration {
	if t.MaxDuration == nil {
		return defaultMaxDuration
	}
	return *t.MaxDuration
}

// Holiday is a range of days. Both ends are included.
//
// +kubebuilder:validation:XValidation:rule="self.from <= self.to",fieldPath=".to",message="must not be before from"
type Holiday struct {
	// From is the first day.
	//
	// +required
	From period.Date `json:"from"`

	// To is the last day. It must not be before the first.
	//
	// +required
	To period.Date `json:"to"`
}

// Language is the language of a mail.
//
// +kubebuilder:validation:Enum=de;en
type Language string

// The languages of mail.
const (
	LanguageGerman  Language = "de"
	LanguageEnglish Language = "en"
)

// NoticeTerms sets when and in which language Sluice sends mail.
type NoticeTerms struct {
	// Language is the language of the department's mail: en (the default) or de.
	//
	// +optional
	// +kubebuilder:default=en
	Language Language `json:"language,omitempty"`

	// ProjectExpiry lists how long before each step of a project's expiry its owners are
	// warned, without holidays. Those that are longer than the time before the step have no
	// effect. A step happens only when its first warning was sent the longest of these times
	// before, and the last one its own: a warning that is late postpones the step by whole days.
	// Default: 30d, 7d and 1d.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"30d","7d","1d"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	ProjectExpiry []period.Duration `json:"projectExpiry,omitempty"`

	// WorkloadEnd lists how long before the end of a workload its creator is warned, or the
	// project's owners: see copyOwners. Default: 24h, 4h and 30m.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={"24h","4h","30m"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	WorkloadEnd []period.Duration `json:"workloadEnd,omitempty"`

	// CopyOwners sends the mail about each workload also to the owners of its project. Default:
	// the owners receive it only if no address of the workload's creator is known.
	//
	// +optional
	CopyOwners bool `json:"copyOwners,omitempty"`

	// Digest is a cron expression of five fields: minute, hour, day of month, month and day of
	// week. At these times each recipient gets all project warnings in one mail. A warning is in
	// the last digest that is early enough. Without it each warning is sent as its own mail.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9*/,-]+ +[0-9*/,-]+ +[0-9*/,?-]+ +[0-9A-Za-z*/,-]+ +[0-9A-Za-z*/,?-]+$')",message="must be a cron expression of five fields (minute, hour, day of month, month, day of week), such as 0 8 * * *"
	Digest string `json:"digest,omitempty"`

	// TimeZone is the time zone of the department, by its IANA name, such as Europe/Berlin.
	// Days, holidays and cron expressions are read in it. Default: UTC.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && self != 'Local'",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}
