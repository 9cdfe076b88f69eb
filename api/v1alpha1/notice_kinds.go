// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NoticeKind is what a message is about.
//
// +kubebuilder:validation:Enum=ProjectExpiring;ProjectExpired;ProjectSuspending;ProjectSuspended;ProjectDeletion;ProjectConfirm;ProjectRenewed;ProjectDeleted;WorkloadEnding;WorkloadIdle;WorkloadStopped;OverShare;Preemption;ExtensionRequested;ExtensionDecided;QuotaThreshold;WeeklySummary;Digest;Test
type NoticeKind string

// OptionalNoticeKind is a NoticeKind that nobody has to read.
//
// +kubebuilder:validation:Enum=QuotaThreshold;WeeklySummary;OverShare;ProjectRenewed
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
	// NoticeOverShare warns that a pod holds more memory than its share.
	NoticeOverShare NoticeKind = "OverShare"
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
