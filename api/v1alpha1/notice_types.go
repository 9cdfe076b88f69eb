// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
)

// NoticeRecipient is who is written to, and how.
type NoticeRecipient struct {
	Contact `json:",inline"`

	// Language is the language of the text.
	//
	// +optional
	// +kubebuilder:default=en
	Language Language `json:"language,omitempty"`

	// TimeZone is the zone in which the text gives times.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && self != 'Local'",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}

// ObjectReference names any object.
type ObjectReference struct {
	// APIVersion is the object's group and version.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind is the object's kind.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Namespace is the object's namespace; empty where it has none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name is the object's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// UID is the object's identity.
	//
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// NoticeSpec is one message to one recipient. It never changes.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: it says what was sent"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'Digest') == has(self.date)",fieldPath=".date",message="is the day of a Digest: required there, and left out elsewhere"
// +kubebuilder:validation:XValidation:rule="(self.kind in ['Digest', 'Test']) != has(self.subject)",fieldPath=".subject",message="is required, except for a Digest or a Test, which have none"
// +kubebuilder:validation:XValidation:rule="!has(self.digest) || !(self.kind in ['Digest', 'WeeklySummary', 'Test'])",fieldPath=".digest",message="is left out for a Digest, a WeeklySummary and a Test: each is a mail of its own"
// +kubebuilder:validation:XValidation:rule="has(self.deadline) || !(self.kind in ['WorkloadEnding', 'WorkloadIdle', 'Preemption', 'ProjectExpiring', 'ProjectSuspending', 'ProjectConfirm'])",fieldPath=".deadline",message="is required for a kind that warns of an end: WorkloadEnding, WorkloadIdle, Preemption, ProjectExpiring, ProjectSuspending, ProjectConfirm"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Test' || !has(self.deadline) && !has(self.lead)",fieldPath=".deadline",message="is left out for a Test, and so is lead: it warns of nothing"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Test' || !has(self.inputs)",fieldPath=".inputs",message="is left out for a Test: its text is made of nothing that a person wrote"
type NoticeSpec struct {
	// Recipient is who is written to.
	//
	// +required
	Recipient NoticeRecipient `json:"recipient"`

	// Kind is what the message is about.
	//
	// +required
	Kind NoticeKind `json:"kind"`

	// Subject is the object that the message speaks of; a Digest and a Test speak of
	// none.
	//
	// +optional
	Subject *ObjectReference `json:"subject,omitempty"`

	// DueAt is when it was to be sent, in policy time.
	//
	// +required
	DueAt metav1.Time `json:"dueAt"`

	// Lead is how long before the deadline it was due.
	//
	// +optional
	Lead *period.Duration `json:"lead,omitempty"`

	// Deadline is what it warns of, in policy time.
	//
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// Date is the day of a digest, in the recipient's time zone.
	//
	// +optional
	Date *period.Date `json:"date,omitempty"`

	// Digest is the name of the Notice that carries this one. It is sent with that.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Digest string `json:"digest,omitempty"`

	// Inputs are what the text is made of, besides the above.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Inputs map[string]string `json:"inputs,omitempty"`
}

// NoticePhase is where a message is on its way.
//
// +kubebuilder:validation:Enum=Pending;Sending;Sent;Failed;Superseded
type NoticePhase string

// The phases of a message.
const (
	// NoticePending: it waits to be sent, for the first time or again.
	NoticePending NoticePhase = "Pending"
	// NoticeSending: somebody is at it. Where the claim is old, it is sent again.
	NoticeSending NoticePhase = "Sending"
	// NoticeSent: the mail server took it.
	NoticeSent NoticePhase = "Sent"
	// NoticeFailed: it will not be sent.
	NoticeFailed NoticePhase = "Failed"
	// NoticeSuperseded: a later one says all it would have said.
	NoticeSuperseded NoticePhase = "Superseded"
)

// NoticeStatus is how far a message has come. All times in it are machine time,
// but sentAt, which is compared with deadlines.
type NoticeStatus struct {
	// Phase is where the message is on its way; empty means Pending.
	//
	// +optional
	Phase NoticePhase `json:"phase,omitempty"`

	// Attempts is how often it was tried.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts"`

	// ClaimedBy is who is sending it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClaimedBy string `json:"claimedBy,omitempty"`

	// ClaimedAt is since when.
	//
	// +optional
	ClaimedAt *metav1.Time `json:"claimedAt,omitempty"`

	// RetryAt is when it is tried again.
	//
	// +optional
	RetryAt *metav1.Time `json:"retryAt,omitempty"`

	// MessageID is the mail's Message-ID, the same at every attempt.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=320
	MessageID string `json:"messageID,omitempty"`

	// Sequence is how often the deadline of its subject had changed as its recipient was
	// told, when it was sent: the SEQUENCE of the mail's appointment.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sequence int32 `json:"sequence,omitempty"`

	// LastError is what the mail server, or the way to it, last said.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`

	// SentAt is when the mail server took it, in policy time.
	//
	// +optional
	SentAt *metav1.Time `json:"sentAt,omitempty"`
}

// Notice is one message to one recipient: the outbox, and the record of who was
// told what and when.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slnotice,categories=sluice
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Recipient",type=string,JSONPath=`.spec.recipient.email`
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.spec.subject.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Due",type=string,JSONPath=`.spec.dueAt`
// +kubebuilder:printcolumn:name="Sent",type=string,JSONPath=`.status.sentAt`
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`,priority=1
// +kubebuilder:printcolumn:name="Error",type=string,JSONPath=`.status.lastError`,priority=1
type Notice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the message.
	//
	// +required
	Spec NoticeSpec `json:"spec"`

	// Status is how far it has come.
	//
	// +optional
	Status NoticeStatus `json:"status,omitempty,omitzero"`
}

// NoticeList is a list of notices.
//
// +kubebuilder:object:root=true
type NoticeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Notice `json:"items"`
}

// NoticeKind is what a message is about.
//
// +kubebuilder:validation:Enum=ProjectExpiring;ProjectExpired;ProjectSuspending;ProjectSuspended;ProjectDeletion;ProjectConfirm;ProjectRenewed;ProjectDeleted;WorkloadEnding;WorkloadIdle;WorkloadStopped;ShareExceeded;Preemption;ExtensionRequested;ExtensionDecided;QuotaThreshold;WeeklySummary;Digest;Test
type NoticeKind string

// OptionalNoticeKind is a NoticeKind that nobody has to read.
//
// +kubebuilder:validation:Enum=QuotaThreshold;WeeklySummary;ShareExceeded;ProjectRenewed
type OptionalNoticeKind string

// The kinds of messages.
const (
	// NoticeProjectExpiring warns of a project's expiry.
	NoticeProjectExpiring NoticeKind = "ProjectExpiring"
	// NoticeProjectExpired says that no new GPU pods are let in.
	NoticeProjectExpired NoticeKind = "ProjectExpired"
	// NoticeProjectSuspending warns that a project's running work will be stopped.
	NoticeProjectSuspending NoticeKind = "ProjectSuspending"
	// NoticeProjectSuspended says that it was, and how it is started again.
	NoticeProjectSuspended NoticeKind = "ProjectSuspended"
	// NoticeProjectDeletion warns that a deletion will be, or is, up for approval.
	NoticeProjectDeletion NoticeKind = "ProjectDeletion"
	// NoticeProjectConfirm asks whether a project is still needed.
	NoticeProjectConfirm NoticeKind = "ProjectConfirm"
	// NoticeProjectRenewed says until when a project is valid now.
	NoticeProjectRenewed NoticeKind = "ProjectRenewed"
	// NoticeProjectDeleted says what was taken away and what was left.
	NoticeProjectDeleted NoticeKind = "ProjectDeleted"
	// NoticeWorkloadEnding warns of a workload's end at its limit.
	NoticeWorkloadEnding NoticeKind = "WorkloadEnding"
	// NoticeWorkloadIdle warns of a workload's end for want of use.
	NoticeWorkloadIdle NoticeKind = "WorkloadIdle"
	// NoticeWorkloadStopped says that a workload was stopped, and why.
	NoticeWorkloadStopped NoticeKind = "WorkloadStopped"
	// NoticeShareExceeded warns that a pod holds more memory than its share.
	NoticeShareExceeded NoticeKind = "ShareExceeded"
	// NoticePreemption announces that a pod will make room.
	NoticePreemption NoticeKind = "Preemption"
	// NoticeExtensionRequested asks somebody to decide.
	NoticeExtensionRequested NoticeKind = "ExtensionRequested"
	// NoticeExtensionDecided says what was decided.
	NoticeExtensionDecided NoticeKind = "ExtensionDecided"
	// NoticeQuotaThreshold says that a project uses most of what it may have.
	NoticeQuotaThreshold NoticeKind = "QuotaThreshold"
	// NoticeWeeklySummary tells a department's administrators of its week.
	NoticeWeeklySummary NoticeKind = "WeeklySummary"
	// NoticeDigest collects the warnings of one day and recipient.
	NoticeDigest NoticeKind = "Digest"
	// NoticeTest says that mail arrives: an administrator asked for it.
	NoticeTest NoticeKind = "Test"
)
