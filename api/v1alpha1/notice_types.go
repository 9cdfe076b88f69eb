// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
)

// NoticeRecipient is the recipient of a message, with language and time zone.
type NoticeRecipient struct {
	Contact `json:",inline"`

	// Language is the language of the message. Default: en.
	//
	// +optional
	// +kubebuilder:default=en
	Language Language `json:"language,omitempty"`

	// TimeZone is the time zone in which the message shows times, by its IANA name. Default:
	// UTC.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && self != 'Local'",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}

// ObjectReference names an object of any kind.
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

	// Namespace is the object's namespace. It is empty for cluster-scoped objects.
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

	// UID is the object's UID.
	//
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// NoticeSpec is one message to one recipient. It cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'Digest') == has(self.date)",fieldPath=".date",message="is required for a Digest and must be left out otherwise"
// +kubebuilder:validation:XValidation:rule="(self.kind in ['Digest', 'Test']) != has(self.subject)",fieldPath=".subject",message="is required, except for a Digest or a Test, which have none"
// +kubebuilder:validation:XValidation:rule="!has(self.digest) || !(self.kind in ['Digest', 'WeeklySummary', 'Test'])",fieldPath=".digest",message="must be left out for a Digest, a WeeklySummary and a Test: each is sent as its own mail"
// +kubebuilder:validation:XValidation:rule="has(self.deadline) || !(self.kind in ['WorkloadEnding', 'WorkloadIdle', 'Preemption', 'ProjectExpiring', 'ProjectSuspending', 'ProjectConfirm'])",fieldPath=".deadline",message="is required for the kinds that warn of an end: WorkloadEnding, WorkloadIdle, Preemption, ProjectExpiring, ProjectSuspending, ProjectConfirm"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Test' || !has(self.deadline) && !has(self.lead)",fieldPath=".deadline",message="must be left out for a Test, and so must lead"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Test' || !has(self.inputs)",fieldPath=".inputs",message="must be left out for a Test"
type NoticeSpec struct {
	// Recipient is the recipient of the message.
	//
	// +required
	Recipient NoticeRecipient `json:"recipient"`

	// Kind is the kind of the message.
	//
	// +required
	Kind NoticeKind `json:"kind"`

	// Subject is the object that the message is about. It is required, except for the kinds
	// Digest and Test, which have none.
	//
	// +optional
	Subject *ObjectReference `json:"subject,omitempty"`

	// DueAt is when the message is due, in policy time.
	//
	// +required
	DueAt metav1.Time `json:"dueAt"`

	// Lead is the time from dueAt to the deadline.
	//
	// +optional
	Lead *period.Duration `json:"lead,omitempty"`

	// Deadline is the end that the message announces, in policy time. Kinds that warn of an
	// end require it.
	//
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// Date is the day of a Digest, in the recipient's time zone. Other kinds have none.
	//
	// +optional
	Date *period.Date `json:"date,omitempty"`

	// Digest is the name of the Notice that contains this message. This message is then not
	// sent by itself.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Digest string `json:"digest,omitempty"`

	// Inputs are further values for the text of the message.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Inputs map[string]string `json:"inputs,omitempty"`
}

// NoticePhase is the phase of a message's delivery.
//
// +kubebuilder:validation:Enum=Pending;Sending;Sent;Failed;Superseded
type NoticePhase string

// The phases of a message.
const (
	// NoticePending means that the message has not been sent yet and will be.
	NoticePending NoticePhase = "Pending"
	// NoticeSending means that a process has claimed the message. A message with an old claim
	// is sent again.
	NoticeSending NoticePhase = "Sending"
	// NoticeSent means that the mail server accepted the message.
	NoticeSent NoticePhase = "Sent"
	// NoticeFailed means that the message will not be sent.
	NoticeFailed NoticePhase = "Failed"
	// NoticeSuperseded means that a later message replaces this one.
	NoticeSuperseded NoticePhase = "Superseded"
)

// NoticeStatus is the state of a message's delivery. All times in it are machine time, except
// sentAt.
type NoticeStatus struct {
	// Phase is the phase of the delivery. An empty value means Pending.
	//
	// +optional
	Phase NoticePhase `json:"phase,omitempty"`

	// Attempts is the number of attempts to send the message.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts"`

	// ClaimedBy is the name of the process that is sending the message.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClaimedBy string `json:"claimedBy,omitempty"`

	// ClaimedAt is when the process claimed the message.
	//
	// +optional
	ClaimedAt *metav1.Time `json:"claimedAt,omitempty"`

	// RetryAt is when the message will be sent again.
	//
	// +optional
	RetryAt *metav1.Time `json:"retryAt,omitempty"`

	// MessageID is the Message-ID of the mail. It is the same for every attempt.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=320
	MessageID string `json:"messageID,omitempty"`

	// Sequence is the SEQUENCE of the calendar entry in the mail: the number of earlier mails
	// that named another deadline.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sequence int32 `json:"sequence,omitempty"`

	// LastError is the last error of the mail server or of the connection to it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`

	// SentAt is when the mail server accepted the message, in policy time.
	//
	// +optional
	SentAt *metav1.Time `json:"sentAt,omitempty"`
}

// Notice is one message to one recipient. Notices are both the outbox and the history of all
// messages.
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

	// Status is the state of the delivery.
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

// NoticeKind is the kind of a message.
//
// +kubebuilder:validation:Enum=ProjectExpiring;ProjectExpired;ProjectSuspending;ProjectSuspended;ProjectDeletion;ProjectConfirm;ProjectRenewed;ProjectDeleted;WorkloadEnding;WorkloadIdle;WorkloadStopped;WorkloadUnstoppable;ShareExceeded;Preemption;ExtensionRequested;ExtensionDecided;QuotaThreshold;WeeklySummary;Digest;Test
type NoticeKind string

// OptionalNoticeKind is a NoticeKind that recipients can mute.
//
// +kubebuilder:validation:Enum=QuotaThreshold;WeeklySummary;ShareExceeded;ProjectRenewed
type OptionalNoticeKind string

// The kinds of messages.
const (
	// NoticeProjectExpiring warns of a project's expiry.
	NoticeProjectExpiring NoticeKind = "ProjectExpiring"
	// NoticeProjectExpired reports that a project has expired and new GPU pods are rejected.
	NoticeProjectExpired NoticeKind = "ProjectExpired"
	// NoticeProjectSuspending warns that a project's running workloads will be stopped.
	NoticeProjectSuspending NoticeKind = "ProjectSuspending"
	// NoticeProjectSuspended reports that the workloads were stopped and how to start them
	// again.
	NoticeProjectSuspended NoticeKind = "ProjectSuspended"
	// NoticeProjectDeletion warns that approval of the project's deletion is or will be requested, or
	// that it was approved; or reports that it was dismissed.
	NoticeProjectDeletion NoticeKind = "ProjectDeletion"
	// NoticeProjectConfirm asks whether a project is still needed.
	NoticeProjectConfirm NoticeKind = "ProjectConfirm"
	// NoticeProjectRenewed reports the new end of a project's validity.
	NoticeProjectRenewed NoticeKind = "ProjectRenewed"
	// NoticeProjectDeleted lists what was deleted and what was kept.
	NoticeProjectDeleted NoticeKind = "ProjectDeleted"
	// NoticeWorkloadEnding warns that a workload will reach its limit.
	NoticeWorkloadEnding NoticeKind = "WorkloadEnding"
	// NoticeWorkloadIdle warns that an idle workload will be stopped.
	NoticeWorkloadIdle NoticeKind = "WorkloadIdle"
	// NoticeWorkloadStopped reports that a workload is being stopped, and why.
	NoticeWorkloadStopped NoticeKind = "WorkloadStopped"
	// NoticeWorkloadUnstoppable reports to the department's contacts that a workload runs
	// although Sluice stopped it.
	NoticeWorkloadUnstoppable NoticeKind = "WorkloadUnstoppable"
	// NoticeShareExceeded warns that a pod uses more GPU memory than its share.
	NoticeShareExceeded NoticeKind = "ShareExceeded"
	// NoticePreemption announces that a pod will be preempted.
	NoticePreemption NoticeKind = "Preemption"
	// NoticeExtensionRequested asks an approver to decide on an Extension.
	NoticeExtensionRequested NoticeKind = "ExtensionRequested"
	// NoticeExtensionDecided reports the decision on an Extension.
	NoticeExtensionDecided NoticeKind = "ExtensionDecided"
	// NoticeQuotaThreshold reports that a project uses most of its quota.
	NoticeQuotaThreshold NoticeKind = "QuotaThreshold"
	// NoticeWeeklySummary summarizes the week of a department for its administrators.
	NoticeWeeklySummary NoticeKind = "WeeklySummary"
	// NoticeDigest collects the warnings of one day for one recipient.
	NoticeDigest NoticeKind = "Digest"
	// NoticeTest tests mail delivery at an administrator's request.
	NoticeTest NoticeKind = "Test"
)

// NoticeKinds are all kinds of Notices.
var NoticeKinds = []NoticeKind{
	NoticeProjectExpiring, NoticeProjectExpired, NoticeProjectSuspending, NoticeProjectSuspended, NoticeProjectDeletion,
	NoticeProjectConfirm, NoticeProjectRenewed, NoticeProjectDeleted, NoticeWorkloadEnding, NoticeWorkloadIdle,
	NoticeWorkloadStopped, NoticeWorkloadUnstoppable, NoticeShareExceeded, NoticePreemption, NoticeExtensionRequested,
	NoticeExtensionDecided, NoticeQuotaThreshold, NoticeWeeklySummary, NoticeDigest, NoticeTest,
}

// IsOptional reports whether the recipient can mute the message. One that announces the end of a pod can not be
// muted.
func (s *NoticeSpec) IsOptional() bool {
	switch s.Kind {
	case NoticeQuotaThreshold, NoticeWeeklySummary, NoticeProjectRenewed:
		return true
	case NoticeShareExceeded:
		return s.Deadline == nil
	}
	return false
}
